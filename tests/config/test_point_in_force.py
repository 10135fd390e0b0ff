"""What is told of an operating point at start."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noria.config.asked import EngineOptions
from noria.config.errors import ConfigError
from noria.config.hardware import machine_facts
from noria.config.operating_point import over_operating_point, write_operating_point
from noria.config.option import settings_of
from noria.config.parse import build, given_by_mapping, value_of
from noria.config.point_in_force import PointInForce, point_in_force
from noria.config.serving import ServeOptions
from support_config import GIB, hardware, operating_point, resolved

MODEL = {"name": "tiny", "hash": "0123456789abcdef"}
MACHINE = {"processor": "A Processor", "cpus": 2, "memory_bytes": 8 * 2**30}


def in_force(path: Path, cls: type = ServeOptions, **stated: Any) -> PointInForce:
    """Of a point of 32 sequences, steps of 256 tokens and a queue of 9 requests, with settings stated beside it."""
    settings = {"max_num_seqs": 32, "max_num_batched_tokens": 256, "max_num_queued_reqs": 9}
    write_operating_point(operating_point(**settings), str(path))
    given = given_by_mapping(cls, {"operating_point": str(path), **stated})
    found = point_in_force(build(cls, over_operating_point(cls, given)))
    assert found is not None
    return found


def test_without_an_operating_point_none_is_in_force() -> None:
    assert point_in_force(ServeOptions()) is None


def test_what_holds_of_a_point_and_what_was_stated_otherwise_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    told = in_force(path, max_num_batched_tokens=512, max_num_seqs=32).words()
    assert told == (
        f"operating point {path} (3.1 requests/s with P95 of TTFT <= 1000 ms and ITL <= 100 ms) sets max_num_seqs 32, "
        f"max_num_queued_reqs 9; stated otherwise: max_num_batched_tokens 512 (256 in it)"
    )


def test_a_server_tells_which_point_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    found = in_force(path, max_num_seqs=8)
    assert found.about() == {
        "file": str(path),
        "hash": found.point.hash,
        "rate": 3.1,
        "settings": {"max_num_batched_tokens": 256, "max_num_queued_reqs": 9},
        "departures": {"max_num_seqs": 8},
    }


POOL = {"num_gpu_blocks_override": 500, "block_size": 16, "kv_cache_dtype": "float16"}


def over(path: Path, point: dict[str, Any], **stated: Any) -> dict[str, Any]:
    """What the settings of a point come to under what is stated, by name, where it is not the default."""
    write_operating_point(operating_point(**point), str(path))
    given = given_by_mapping(EngineOptions, {"operating_point": str(path), **stated})
    options = build(EngineOptions, over_operating_point(EngineOptions, given))
    found = {one.name: value_of(options, one) for one in settings_of(EngineOptions)}
    return {name: found[name] for name in (*POOL, "kv_cache_memory")}


@pytest.mark.parametrize(
    ("point", "stated", "blocks", "memory"),
    [
        (POOL, {}, 500, None),
        (POOL, {"kv_cache_memory": "2GiB"}, None, 2 * 2**30),
        (POOL, {"kv_cache_memory": None}, 500, None),
        (POOL, {"block_size": "32"}, None, None),
        (POOL, {"block_size": "16"}, 500, None),
        (POOL, {"kv_cache_dtype": "int8"}, None, None),
        (POOL, {"kv_cache_dtype": "half"}, 500, None),
        (POOL, {"block_size": 32, "num_gpu_blocks_override": 250}, 250, None),
        ({"num_gpu_blocks_override": 500}, {"block_size": 16}, 500, None),
        ({"num_gpu_blocks_override": 500}, {"block_size": 8}, None, None),
        ({"kv_cache_memory": 2**30}, {"block_size": 8}, None, 2**30),
        ({"kv_cache_memory": 2**30}, {"num_gpu_blocks_override": 40}, 40, None),
    ],
)
def test_the_memory_of_the_cache_is_what_is_stated_last_and_never_stated_twice(
    point: dict[str, Any], stated: dict[str, Any], blocks: int | None, memory: int | None, tmp_path: Path
) -> None:
    found = over(tmp_path / "point.json", point, **stated)
    assert (found["num_gpu_blocks_override"], found["kv_cache_memory"]) == (blocks, memory)


def test_a_number_of_blocks_that_lost_its_ground_is_told(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    write_operating_point(operating_point(**POOL), str(path))
    given = given_by_mapping(EngineOptions, {"operating_point": str(path), "kv_cache_memory": "1GiB"})
    found = point_in_force(build(EngineOptions, over_operating_point(EngineOptions, given)))
    assert found is not None
    assert found.departures == {"num_gpu_blocks_override": None}
    assert "stated otherwise: num_gpu_blocks_override derived (500 in it)" in found.words()


def test_a_machine_with_less_memory_than_a_points_cache_needs_is_told_which_number_fits(
    tmp_path: Path,
) -> None:
    """A smaller cache, taken in silence, would leave a promise that nobody has measured."""
    path = tmp_path / "point.json"
    write_operating_point(operating_point(num_gpu_blocks_override=6000, max_model_len=1024), str(path))

    def asked(**stated: Any) -> dict[str, Any]:
        given = given_by_mapping(EngineOptions, {"operating_point": str(path), **stated})
        options = build(EngineOptions, over_operating_point(EngineOptions, given))
        return {"num_gpu_blocks_override": options.memory.num_gpu_blocks_override, "max_model_len": 1024}

    assert resolved(asked(), hardware(total=8 * GIB)).config.cache.num_blocks == 6000
    with pytest.raises(ConfigError) as refused:
        resolved(asked(), hardware(total=4 * GIB))
    fitting = int(re.findall(r"--num-gpu-blocks-override (\d+)", str(refused.value))[0])
    assert 1000 < fitting < 6000
    small = resolved(asked(num_gpu_blocks_override=fitting), hardware(total=4 * GIB))
    assert small.config.cache.num_blocks == fitting


def test_an_engine_without_a_queue_leaves_the_settings_of_the_queue_alone(tmp_path: Path) -> None:
    found = in_force(tmp_path / "point.json", EngineOptions)
    assert found.settings == {"max_num_seqs": 32, "max_num_batched_tokens": 256}
    assert found.departures == {}


def test_where_it_was_found_nothing_is_warned_of(tmp_path: Path) -> None:
    found = in_force(tmp_path / "point.json")
    assert found.warning(MODEL, "0.5.0", MACHINE) is None
    a_kernel_later = MACHINE | {"memory_bytes": 8 * 2**30 - 50 * 2**20}
    assert found.warning(MODEL, "0.5.0", a_kernel_later) is None


@pytest.mark.parametrize(
    ("model", "version", "machine", "words"),
    [
        ({"name": "big", "hash": "ff"}, "0.5.0", {}, "the model is big (ff), not tiny (0123456789abcdef)"),
        (MODEL, "0.6.0", {}, "the version is 0.6.0, not 0.5.0"),
        (MODEL, "0.5.0", {"processor": "Another"}, "processor is Another, not A Processor"),
        (MODEL, "0.5.0", {"cpus": 4}, "cpus is 4, not 2"),
        (MODEL, "0.5.0", {"memory_bytes": 2**32}, "memory_bytes is 4294967296, not 8589934592"),
    ],
)
def test_what_differs_is_warned_of_with_both_values(
    model: dict[str, str], version: str, machine: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "point.json"
    assert in_force(path).warning(model, version, MACHINE | machine) == (
        f"the operating point {path} was found elsewhere: here {words}. Its settings hold, its rate and its limits "
        f"need not: noria tune finds them anew"
    )


def test_a_simulated_point_says_so_and_knows_its_model_by_name_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "point.json")
    point = operating_point()
    simulated = replace(point, source="simulated", model=replace(point.model, hash=""))
    found = PointInForce(path, simulated, {}, {})
    assert found.words().startswith(f"operating point {path} (3.1 requests/s, simulated, with P95 of TTFT")
    assert found.warning(MODEL, "0.5.0", MACHINE) is None
    other = found.warning({"name": "big", "hash": "ff"}, "0.5.0", MACHINE)
    assert other is not None
    assert "the model is big (ff), not tiny (of unknown content)" in other


def test_everything_that_differs_comes_in_one_warning(tmp_path: Path) -> None:
    told = in_force(tmp_path / "point.json").warning(
        {"name": "big", "hash": "ff"}, "1", MACHINE | {"cpus": 8}
    )
    assert told is not None
    assert told.count("; ") == 2


def test_the_machine_here_is_the_machine_here(tmp_path: Path) -> None:
    path = str(tmp_path / "point.json")
    point = operating_point()
    here = replace(point, fingerprint=replace(point.fingerprint, machine=machine_facts()))
    write_operating_point(here, path)
    found = PointInForce(path, here, {}, {})
    assert found.warning_here(MODEL, "0.5.0") is None
