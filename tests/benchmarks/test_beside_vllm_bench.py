"""What the benchmark of two clients makes of their rounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.beside_vllm_bench import (
    METRICS,
    Compared,
    Load,
    compared,
    lag_words,
    noria_arguments,
    vllm_arguments,
)

from noria.config.benching import BenchOptions
from noria.config.option import settings_of

LOAD = Load(rate=2.5, burstiness=4.0, num_requests=60, num_prompt=100, num_output=20)


def test_rounds_are_compared_in_pairs_with_students_interval() -> None:
    found = Compared("mean_ttft_ms", noria=(11.0, 22.0, 33.0), vllm=(10.0, 20.0, 30.0))
    assert found.difference == pytest.approx(0.1)
    assert found.half_width == pytest.approx(0.0, abs=1e-12)
    assert not found.is_within_noise
    noisy = Compared("mean_ttft_ms", noria=(11.0, 18.0, 33.0), vllm=(10.0, 20.0, 30.0))
    assert noisy.difference == pytest.approx(0.1 / 3)
    assert noisy.half_width == pytest.approx(4.30 * 0.11547 / 3**0.5, rel=1e-3)
    assert noisy.is_within_noise


def test_a_single_round_tells_nothing_apart() -> None:
    assert Compared("mean_ttft_ms", (1.0,), (2.0,)).is_within_noise


def test_every_figure_is_taken_from_both() -> None:
    rounds = [
        {"noria": dict.fromkeys(METRICS, number), "vllm": dict.fromkeys(METRICS, 2 * number)}
        for number in (1, 2)
    ]
    found = compared(rounds)
    assert [one.name for one in found] == list(METRICS)
    assert all((one.noria, one.vllm) == ((1.0, 2.0), (2.0, 4.0)) for one in found)


def test_both_clients_are_asked_for_the_same_load() -> None:
    ours = noria_arguments(LOAD, 3)
    theirs = vllm_arguments(8000, LOAD, 3, Path("tokenizer"), "out")
    pairs = {
        "--rate": "--request-rate",
        "--burstiness": "--burstiness",
        "--requests": "--num-prompts",
        "--prompt-tokens": "--random-input-len",
        "--output-tokens": "--random-output-len",
        "--bench-seed": "--seed",
    }
    assert set(ours[::2]) == set(pairs)
    for our, their in pairs.items():
        assert ours[ours.index(our) + 1] == theirs[theirs.index(their) + 1]
    assert set(ours[::2]) <= {setting.flag for setting in settings_of(BenchOptions)}


def test_a_client_that_sends_late_is_told() -> None:
    lag = {"count": 1500, "p50": 0.4, "p99": 5.0, "max": 9.0}
    assert lag_words(lag, 50.0) == (
        "noria bench at 50 requests/s (1500 requests): sent P50 0.40 ms, P99 5.00 ms, at most 9.00 ms late; within 5 ms"
    )
    assert "NOT within 5 ms" in lag_words(lag | {"p99": 5.1}, 50.0)
