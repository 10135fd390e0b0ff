"""What the benchmark of latency targets makes of its rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.latency_budget import Measured, Plan, Series, Setting, is_better_on_both, measure, verdicts

from benchmarks import latency_budget

ROUND = Measured(100.0, 50.0, 900.0, 500.0, 1.5, 60.0, False, ())


def series(setting: Setting, *rounds: tuple[float, float]) -> Series:
    """rounds: P95 ITL in ms and tokens/s."""
    return Series(setting, [replace(ROUND, itl_p95_ms=itl, throughput=speed) for itl, speed in rounds])


TARGET = series(Setting(True, 100), (90, 500), (95, 510), (100, 490))


def test_a_fixed_size_is_better_only_where_both_medians_are() -> None:
    fixed = Setting(False, 256)
    assert is_better_on_both(series(fixed, (80, 520), (94, 501), (300, 480)), TARGET)
    assert not is_better_on_both(series(fixed, (80, 490), (80, 499), (80, 600)), TARGET)
    assert not is_better_on_both(series(fixed, (96, 900)), TARGET)
    assert not is_better_on_both(TARGET, TARGET)


def test_every_target_is_judged_against_every_fixed_size() -> None:
    steadier = series(Setting(False, 64), (40, 300))
    faster = series(Setting(False, 2048), (400, 550))
    better = series(Setting(False, 256), (85.5, 550))
    assert verdicts([TARGET, steadier, faster]) == [
        "no fixed size is better than itl_slo_ms=100 on both P95 ITL and throughput"
    ]
    assert verdicts([TARGET, steadier, better]) == [
        "max_num_batched_tokens=256 is better on both: P95 ITL -10.0%, throughput +10.0% (rounds of the target differ "
        "by 4.0% in throughput) than itl_slo_ms=100"
    ]


def test_every_setting_gets_the_same_requests() -> None:
    closed, opened = Plan(16, 100, None, 60.0, 7), Plan(16, 100, 1.25, 60.0, 7)
    assert closed.arguments[4:6] == ["--max-concurrency", "16"]
    assert opened.arguments[4:6] == ["--rate", "1.2500"]
    ends = ["--requests", "100", "--duration", "180.0", "--bench-seed", "7"]
    assert closed.arguments[6:] == opened.arguments[6:] == ends


def test_a_setting_whose_server_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(flags: Any) -> Any:
        raise AssertionError("the server was not ready")

    monkeypatch.setattr(latency_budget, "serving", fails)
    told: list[str] = []
    failing = Series(Setting(False, 64), [])
    measure(failing, Plan(1, 1, None, 1.0, 1), told.append)
    assert (failing.rounds, told) == ([], ["failed: the server was not ready"])


def test_the_same_figures_make_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = [
        TARGET,
        series(Setting(False, 64), (40, 300)),
        series(Setting(False, 512), (200, 520), (220, 510)),
    ]
    pictures = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for path in pictures:
        latency_budget.plot(found, path)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert b"512" in pictures[0].read_bytes()
