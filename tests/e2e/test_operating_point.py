"""An operating point in a server's hands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import noria
from noria.config.hardware import machine_facts
from noria.config.operating_point import OperatingPoint, write_operating_point
from support_config import operating_point
from support_processes import Processes, processes


def found_here(**settings: object) -> OperatingPoint:
    point = operating_point(**settings)
    here = replace(point.fingerprint, engine_version=noria.__version__, machine=machine_facts())
    return replace(point, fingerprint=here)


def server_info(server: Processes) -> dict[str, dict[str, object]]:
    with urlopen(f"{server.url}/server_info") as answer:
        return json.load(answer)


def test_a_server_runs_at_its_operating_point_and_tells_what_is_otherwise(
    tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "point.json"
    point = found_here(
        max_num_seqs=7, max_num_batched_tokens=96, num_gpu_blocks_override=34, model=str(tiny_model)
    )
    write_operating_point(point, str(path))
    with processes(
        tmp_path / "server.log", "--operating-point", path, "--max-num-batched-tokens", 64
    ) as server:
        server.ready()
        told, log = server_info(server), server.text()
        assert server.stream("the fox", 4).end().is_whole
    assert told["settings"]["scheduler"]["max_num_seqs"] == 7
    assert told["settings"]["scheduler"]["max_num_batched_tokens"] == 64
    assert told["settings"]["cache"]["num_blocks"] == 34
    assert told["operating_point"]["hash"] == point.hash
    assert told["operating_point"]["departures"] == {"max_num_batched_tokens": 64}
    assert log.count("stated otherwise: max_num_batched_tokens 64 (96 in it)") == 1
    [row] = [line for line in log.splitlines() if line.startswith("operating point")]
    assert row.split() == ["operating", "point", point.hash, str(path)]
    [warning] = [line for line in log.splitlines() if "was found elsewhere" in line]
    assert "the model is" in warning
    assert f"not tiny ({point.model.hash})" in warning
    assert "version" not in warning.split("here", 1)[1].split("Its settings")[0]
