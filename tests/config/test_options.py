"""Every setting is declared once and is the same wherever it is written."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.cli.command import Command
from noria.cli.commands import COMMANDS
from noria.config import parse
from noria.config.asked import EngineOptions, MemoryOptions, ModelOptions, SchedulerOptions
from noria.config.docs import options_page, options_table
from noria.config.errors import ConfigError
from noria.config.option import Setting, Several, settings_of
from noria.config.parse import from_mapping
from noria.config.serving import ServeOptions, ServerOptions

ROOT = Path(__file__).parents[2]
SETTINGS = list(settings_of(ServeOptions))
by_name = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)


def value_of(options: ServeOptions, name: str) -> Any:
    setting = next(setting for setting in SETTINGS if setting.name == name)
    return parse.value_of(options, setting)


def test_names_keys_and_environment_names_are_unique() -> None:
    keys = [key for setting in SETTINGS for key in setting.keys]
    variables = [v for setting in SETTINGS for v in (setting.environment, *setting.about.fallbacks)]
    assert len(keys) == len(set(keys))
    assert len(variables) == len(set(variables))


@by_name
def test_every_setting_teaches_and_has_a_default_that_it_accepts(setting: Setting) -> None:
    assert setting.about.help.endswith(".")
    assert setting.read(setting.default, setting.name) == setting.default
    if setting.default in (None, ()):
        assert setting.about.default_words


def test_defaults_are_those_that_the_docs_promise() -> None:
    options = ServeOptions()
    assert options.engine.scheduler == SchedulerOptions(
        None, None, None, 128, True, "fair", 30.0, "continuous"
    )
    assert options.engine.memory == MemoryOptions(None, None, None, 16, "auto", None, True)
    assert (options.server.host, options.server.port) == ("127.0.0.1", 8000)
    assert (options.engine.model.model, options.engine.model.seed) == (None, 0)


def test_a_mapping_becomes_frozen_groups() -> None:
    options = from_mapping(EngineOptions, {"model": "m", "max_model_len": "8k", "block_size": 32})
    assert options == EngineOptions(
        model=ModelOptions(model="m"), memory=MemoryOptions(max_model_len=8000, block_size=32)
    )
    with pytest.raises(FrozenInstanceError):
        options.memory.block_size = 16  # type: ignore[misc]


@pytest.mark.parametrize(
    "key", ["gpu_memory_utilization", "gpu-memory-utilization", "memory-utilization", "memory_utilization"]
)
def test_dashes_underscores_and_aliases_are_the_same_key(key: str) -> None:
    assert from_mapping(EngineOptions, {key: 0.25}).memory.gpu_memory_utilization == 0.25


def test_null_leaves_a_setting_at_its_default() -> None:
    options = from_mapping(ServeOptions, {"port": None, "max_model_len": None, "api-key": None})
    assert options == ServeOptions()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("max_model_length", "'max_model_len'"),
        ("max-num-seq", "'max_num_seqs'"),
        ("prot", "'port'"),
        ("dtyp", "'dtype'"),
    ],
)
def test_an_unknown_key_is_refused_with_what_it_may_mean(key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(ServeOptions, {key: 1}, "my.yaml")
    assert str(caught.value) == f"unknown setting {key!r} (in my.yaml); did you mean {hint}?"


def test_a_key_like_none_other_gets_no_guess() -> None:
    with pytest.raises(ConfigError, match=r"^unknown setting 'colour'$"):
        from_mapping(ServeOptions, {"colour": "red"})


def test_a_setting_of_the_server_is_unknown_to_the_engine() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'port'"):
        from_mapping(EngineOptions, {"port": 8000})


def test_two_spellings_of_one_setting_are_refused() -> None:
    with pytest.raises(ConfigError, match="memory-utilization is the same setting as gpu_memory_utilization"):
        from_mapping(EngineOptions, {"gpu_memory_utilization": 0.5, "memory-utilization": 0.6})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(ServeOptions, {"port": 70000, "max_num_seqs": 0, "dtype": "float8"})
    lines = str(caught.value).splitlines()
    assert lines == [
        "3 settings cannot work:",
        "- dtype must be one of auto, float32, bfloat16, float16, got 'float8'",
        "- max_num_seqs must be a whole number of at least 1, got 0",
        "- port must be a whole number of at least 0 and at most 65535, got 70000",
    ]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("max_num_seqs", 0),
        ("max_num_seqs", -5),
        ("max_num_seqs", 1.5),
        ("max_num_seqs", True),
        ("max_num_seqs", "many"),
        ("max_num_seqs", []),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.01),
        ("gpu_memory_utilization", "nan"),
        ("gpu_memory_utilization", float("inf")),
        ("priority_aging_s", 0),
        ("block_size", 24),
        ("block_size", 4),
        ("max_model_len", 0),
        ("max_model_len", -2),
        ("max_model_len", "8q"),
        ("max_model_len", True),
        ("kv_cache_memory", "0"),
        ("kv_cache_memory", "12 apples"),
        ("num_gpu_blocks_override", 0),
        ("enable_prefix_caching", "maybe"),
        ("enable_prefix_caching", 1),
        ("device", "cuda"),
        ("seed", -1),
        ("seed", 2**64),
        ("model", ""),
        ("model", 7),
        ("shutdown_timeout", "inf"),
        ("shutdown_timeout", -1),
        ("served_model_name", 3),
        ("served_model_name", [""]),
    ],
)
def test_a_wrong_value_is_refused_by_name_with_what_was_found(name: str, raw: object) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(ServeOptions, {name: raw})
    message = str(caught.value)
    assert message.startswith(f"{name} must be ")
    assert "got" in message


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("max_model_len", "auto", "auto"),
        ("max_model_len", -1, "auto"),
        ("max_model_len", "-1", "auto"),
        ("max_model_len", "8K", 8192),
        ("kv_cache_memory", "1.5GB", 1_500_000_000),
        ("kv_cache_memory_bytes", 4096, 4096),
        ("dtype", "half", "float16"),
        ("generation_config", "vllm", "none"),
        ("enable_prefix_caching", "off", False),
        ("api_key", "one", ("one",)),
        ("api_key", ["one", "two"], ("one", "two")),
        ("model", Path("/models/m"), "/models/m"),
        ("gpu_memory_utilization", 1, 1.0),
    ],
)
def test_a_value_may_be_written_as_people_write_it(name: str, raw: object, value: object) -> None:
    options = from_mapping(ServeOptions, {name: raw})
    assert value_of(options, name.removesuffix("_bytes")) == value


def test_a_group_made_by_hand_is_checked_like_any_other() -> None:
    assert MemoryOptions(max_model_len="8k").max_model_len == 8000  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_num_seqs must be a whole number of at least 1, got 0"):
        SchedulerOptions(max_num_seqs=0)
    with pytest.raises(ConfigError, match="port must be"):
        replace(ServerOptions(), port=-1)


def test_a_key_shows_neither_in_an_error_nor_in_a_repr() -> None:
    assert "hunter2" not in repr(from_mapping(ServeOptions, {"api_key": "hunter2"}))
    with pytest.raises(ConfigError) as caught:
        from_mapping(ServeOptions, {"api_key": {"hunter2": 1}})
    assert "hunter2" not in str(caught.value)


text_or_number = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text())
)


@given(st.sampled_from(SETTINGS), text_or_number)
def test_any_value_is_either_read_the_same_twice_or_refused(setting: Setting, raw: object) -> None:
    try:
        value = setting.read(raw, setting.name)
    except ConfigError as error:
        assert str(error).startswith(f"{setting.name} must be {setting.about.requirement}")
    else:
        assert setting.read(value, setting.name) == value
        assert isinstance(value, tuple) == (setting.about.several is not Several.NO)


def test_the_docs_page_is_the_one_that_the_settings_write() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == options_page(), "renew it: python -m noria.config.docs > docs/options.md"


def commands() -> list[Command]:
    """Those of the command line, but the two whose few settings their help alone tells."""
    all_of_them = (one for entry in COMMANDS for one in getattr(entry, "commands", (entry,)))
    return [one for one in all_of_them if one.name not in ("pull", "plugins")]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_the_docs_page_tells_the_settings_of_every_subcommand(command: Command) -> None:
    told = set(options_page().splitlines())
    assert [row for row in options_table(command.options).splitlines() if row not in told] == []


@by_name
def test_every_setting_has_a_row_in_the_docs(setting: Setting) -> None:
    rows = [line for line in options_table(ServeOptions).splitlines() if f"`{setting.flag}`" in line]
    assert len(rows) == 1
    assert setting.about.help.replace("|", "\\|") in rows[0]


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that nothing reads would be an ignored field. Serving, asking and docs only declare them."""
    declared = {"asked.py", "serving.py"}
    read: set[str] = set()
    for path in (ROOT / "src" / "noria").rglob("*.py"):
        if path.name not in declared:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {setting.name for setting in SETTINGS} - read == set()


def test_settings_need_only_the_standard_library() -> None:
    modules = sorted(
        path.stem for path in (ROOT / "src/noria/config").glob("*.py") if path.stem != "__init__"
    )
    script = (
        "import sys; before = set(sys.modules)\n"
        + "".join(f"import noria.config.{module}\n" for module in modules)
        + "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "['noria']", answer.stderr
