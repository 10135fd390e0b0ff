"""operating_point.json is read as it was written, or refused by the name of what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.errors import ConfigError
from noria.config.operating_point import (
    PointFigure,
    point_settings,
    read_operating_point,
    write_operating_point,
)
from support_config import operating_point

NAMES = {setting.name for setting in point_settings()}
TEXTS = st.text(max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "max_num_seqs": st.integers(1, 4096),
        "max_num_batched_tokens": st.none() | st.integers(1, 16384),
        "block_size": st.sampled_from([8, 16, 32, 64]),
        "max_model_len": st.none() | st.just("auto") | st.integers(1, 10**6),
        "enable_prefix_caching": st.booleans(),
        "itl_slo_ms": st.none() | st.floats(0.1, 1e6),
        "quantization": st.sampled_from(["none", "w8", "w4"]),
        "max_num_queued_reqs": st.none() | st.integers(1, 1000),
    },
)
POINTS = st.builds(
    lambda settings, figures, options, rates: replace(
        operating_point(),
        settings=settings,
        measured=figures,
        workload=replace(operating_point().workload, options=options),
        rate=replace(operating_point().rate, passed=rates[0], failed=rates[1]),
    ),
    SETTINGS,
    st.dictionaries(
        TEXTS, st.builds(PointFigure, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS), max_size=4
    ),
    st.dictionaries(TEXTS, VALUES, max_size=4),
    st.tuples(NUMBERS, st.none() | NUMBERS).filter(lambda rates: rates[1] is None or rates[0] < rates[1]),
)


def content_of(directory: Path) -> dict[str, Any]:
    path = directory / "written.json"
    write_operating_point(operating_point(), str(path))
    return json.loads(path.read_text())


def refusal(content: Any, directory: Path) -> str:
    path = directory / "given.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError) as raised:
        read_operating_point(str(path))
    return str(raised.value)


@given(point=POINTS)
def test_a_point_is_read_as_it_was_written(point: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.getbasetemp() / "point.json")
    write_operating_point(point, path)
    assert read_operating_point(path) == point
    assert read_operating_point(path).hash == point.hash


@given(keys=st.lists(st.integers(0, 30), min_size=1, max_size=3), value=VALUES)
def test_whatever_stands_in_an_entry_it_is_read_or_refused_with_its_name(
    keys: list[int], value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp()
    content: Any = content_of(directory)
    place, name = content, ""
    for key in keys:
        name = sorted(place)[key % len(place)]
        if not isinstance(place[name], dict) or not place[name] or key == keys[-1]:
            break
        place = place[name]
    place[name] = value
    path = directory / "given.json"
    path.write_text(json.dumps(content))
    try:
        point = read_operating_point(str(path))
    except ConfigError as error:
        assert name in str(error)
    else:
        again = str(directory / "again.json")
        write_operating_point(point, again)
        assert read_operating_point(again) == point


@given(text=st.text(max_size=200) | st.binary(max_size=200))
def test_whatever_stands_in_a_file_it_is_refused_with_its_name(
    text: str | bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "given.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match=r"given\.json"):
        read_operating_point(str(path))


def test_its_format_stands_first_so_that_a_reader_sees_what_it_is(tmp_path: Path) -> None:
    assert next(iter(content_of(tmp_path).items())) == ("format", 1)


@pytest.mark.parametrize(
    ("entry", "value", "words"),
    [
        ("rates", {}, "has an unknown entry 'rates'; did you mean 'rate'?"),
        ("format", 2, "format 2, this version reads 1: run noria tune again"),
        ("rate", {"failed": 3}, "rate lacks 'passed'"),
        ("rate", {"passed": "3"}, "rate: passed must be a number, got '3'"),
        ("rate", {"passed": 12, "failed": 5}, "rate: passed 12.0 has to be less than failed 5.0"),
        ("rate", {"passed": 5, "failed": 5}, "rate: passed 5.0 has to be less than failed 5.0"),
        ("rate", {"passed": True}, "rate: passed must be a number, got True"),
        ("model", [], "model must be an object, got a list"),
        (
            "settings",
            {"max_num_seq": 8},
            "'max_num_seq', which is no setting that an operating point may hold",
        ),
        ("settings", {"max_num_seq": 8}, "did you mean 'max_num_seqs'?"),
        ("settings", {"port": 8}, "'port', which is no setting that an operating point may hold"),
        ("settings", {"api_key": ["secret"]}, "'api_key', which is no setting"),
        ("settings", {"operating_point": "x.json"}, "'operating_point', which is no setting"),
        ("settings", {"max_num_seqs": 0}, "max_num_seqs must be a whole number of at least 1, got 0"),
        ("settings", {"block_size": 12}, "block_size must be one of 8, 16, 32, 64, 128, 256, got 12"),
        ("measured", {"ttft_ms_p95": {"value": 1, "mean": 2}}, "ttft_ms_p95 has an unknown entry 'mean'"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(
    entry: str, value: Any, words: str, tmp_path: Path
) -> None:
    assert words in refusal(content_of(tmp_path) | {entry: value}, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is no operating point; noria tune writes one"),
        ('{"max_num_seqs": 8}', "is no operating point; noria tune writes one"),
        ('{"format": 1, "format": 1}', "'format' stands there twice"),
        ('{"format": 1, "rate": NaN}', "NaN is no number of JSON's"),
        ('{"format": 1, "rate": ' + "[" * 100_000, "nested too deeply"),
        ('{"format": ' + "1" * 5000 + "}", "is not valid JSON"),
    ],
)
def test_a_file_that_is_no_operating_point_is_refused(text: str, words: str, tmp_path: Path) -> None:
    assert words in refusal(text, tmp_path)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    content = content_of(tmp_path) | {"source": 5, "slo": {"percentile": "95", "limit": 1}}
    told = refusal(content, tmp_path)
    assert told.count("\n- ") == 6  # source, percentile, limit, and the three that slo lacks


def test_a_file_that_is_not_there_is_refused_with_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: .*; noria tune writes one"):
        read_operating_point(str(tmp_path / "none.json"))


def test_a_point_with_a_setting_of_the_server_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    with pytest.raises(ConfigError, match="'port', which is no setting that an operating point may hold"):
        write_operating_point(replace(operating_point(), settings={"port": 8000}), str(path))
    assert not path.exists()


def test_settings_may_be_written_as_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    path.write_text(json.dumps(content_of(tmp_path) | {"settings": {"max_model_len": "8k", "dtype": "half"}}))
    assert read_operating_point(str(path)).settings == {"max_model_len": 8000, "dtype": "float16"}


def test_what_tuning_changes_may_be_held() -> None:
    wanted = {
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "max_model_len",
        "enable_prefix_caching",
    }
    wanted |= {"itl_slo_ms", "ttft_slo_ms", "gpu_memory_utilization", "num_threads", "quantization", "model"}
    assert wanted <= NAMES
