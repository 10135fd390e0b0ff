"""`noria inspect` and `noria plugins`, by their outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noria.cli.main import main
from support_models import cached_checkpoint
from support_plugins import install, on_path


def test_the_table_shows_every_tensor_and_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(cached_checkpoint("llama"))]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["layers.0.down.weight", "model.layers.0.mlp.down_proj.weight", "48x80", "F32"] in [
        line[:4] for line in lines
    ]
    # 2 layers x (keys and values) x 2 heads x 8 dimensions x 2 bytes
    assert "128 bytes of KV a token (float16), at most 512 tokens" in out


def test_the_json_has_the_same_numbers_and_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--compare", "--json", "--quantization", "w8", "--tolerance", "0.000001"]
    assert main(["inspect", str(cached_checkpoint("llama", hidden_size=96)), *arguments]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["packed_bytes"] == sum(row["packed_bytes"] for row in told["tensors"])
    assert told["num_tensors"] == len(told["tensors"]) == 1 + 2 * 9 + 2
    assert {row["packed_as"] for row in told["tensors"]} >= {"w8", "float32"}
    first = told["comparison"]["first_beyond_tolerance"]
    assert (first["place"], first["label"]) == (0, "embed (embedding)")


def test_plugins_lists_what_is_there_and_fails_for_what_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins"]) == 0
    points = {"noria.models": {"Bad": "no_such_module:Bad"}, "noria.tool_parsers": {"fine": "json:loads"}}
    install(tmp_path / "site", "bad-pack", points, {})
    with on_path(tmp_path / "site"):
        assert main(["plugins", "--json"]) == 1
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {entry["group"] for entry in told if entry["name"] == "fine"} == {"noria.tool_parsers"}
    (bad,) = [entry for entry in told if entry["fault"] is not None]
    assert (bad["name"], bad["distribution"]) == ("Bad", "bad-pack 1.0")
    assert "ModuleNotFoundError" in bad["fault"]


def test_an_option_of_an_engine_that_runs_is_unknown_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--max-num-seqs", "4"]) == 2
    assert "unknown flag --max-num-seqs" in capsys.readouterr().err
