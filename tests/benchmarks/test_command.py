from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.peers.command import main, parse, sizes
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.forms import fingerprint
from benchmarks.peers.workload import NORMAL, QUICK


def test_by_default_every_engine_meets_every_point_once() -> None:
    arguments = parse([])
    assert tuple(arguments.engines) == ENGINES == ("noria", "openvino", "llama.cpp", "vllm")
    assert arguments.points == [
        "prefill",
        "same",
        "mixed-1",
        "mixed-8",
        "mixed-32",
        "long",
        "ready",
        "memory",
    ]
    assert (arguments.rounds, arguments.format, sizes(arguments)) == (1, "q4_0", NORMAL)


def test_engines_and_points_are_chosen_by_name_and_mixed_means_every_load() -> None:
    arguments = parse(["--engines", "llama.cpp,noria", "--points", "ready,mixed"])
    assert arguments.engines == ["noria", "llama.cpp"]
    assert arguments.points == ["mixed-1", "mixed-8", "mixed-32", "ready"]


def test_requests_may_be_counted_by_hand_beside_quick() -> None:
    assert sizes(parse(["--quick"])) == QUICK
    chosen = sizes(parse(["--quick", "--requests", "2", "9", "40"]))
    assert chosen.num_mixed == {1: 2, 8: 9, 32: 40}
    assert chosen.num_prefill == QUICK.num_prefill


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--points", "mixed-1,speed"], "unknown: speed; known are prefill, same, mixed-1"),
        (["--engines", "ollama"], "unknown: ollama; known are noria, openvino, llama.cpp, vllm"),
        (["--rounds", "0"], "0 is not at least 1"),
        (["--format", "q2_k"], "invalid choice: 'q2_k'"),
    ],
)
def test_a_wrong_word_is_refused_with_what_would_do(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert said in capsys.readouterr().err


def test_a_model_that_is_no_gguf_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(tmp_path / "nothing.gguf"), "--work-dir", str(tmp_path / "work")]
    assert main(words) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_models_of_one_name_are_told_apart_by_size_and_ends(tmp_path: Path) -> None:
    prints = set()
    for content in (b"a" * 3_000_000, b"a" * 3_000_001, b"a" * 2_999_999 + b"b"):
        path = tmp_path / "m.gguf"
        path.write_bytes(content)
        prints.add(fingerprint(path))
        assert fingerprint(path) in prints
    assert len(prints) == 3
