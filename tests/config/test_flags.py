"""Flag over environment over config file over default."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path

import pytest

from noria.config.errors import ConfigError
from noria.config.flags import add_flags, add_positional, from_namespace
from noria.config.operating_point import write_operating_point
from noria.config.option import MAPPING, ORIGIN, Setting, Several, settings_of
from noria.config.serving import ServeOptions
from noria.config.unknown_flags import refuse_unknown_arguments
from support_config import operating_point


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="noria serve", allow_abbrev=False)
    add_positional(made, ServeOptions)
    add_flags(made, ServeOptions)
    return made


def parse(*arguments: str, environ: dict[str, str] | None = None) -> ServeOptions:
    return from_namespace(ServeOptions, parser().parse_args(list(arguments)), environ or {})


def test_nothing_given_is_all_defaults() -> None:
    assert parse() == ServeOptions()


def test_flags_are_read_into_their_settings() -> None:
    options = parse(
        "--max-model-len=-1", "--kv-cache-memory", "512MiB", "--no-enable-prefix-caching", "--port", "0",
        "--api-key", "a", "--api-key", "b", "--served-model-name", "x", "y", "--dtype", "bfloat16",
    )  # fmt: skip
    assert options.engine.memory.max_model_len == "auto"
    assert options.engine.memory.kv_cache_memory == 512 * 2**20
    assert options.engine.memory.enable_prefix_caching is False
    assert options.server.api_key == ("a", "b")
    assert options.server.served_model_name == ("x", "y")
    assert (options.server.port, options.engine.model.dtype) == (0, "bfloat16")


@pytest.mark.parametrize(
    "arguments",
    [("m",), ("--model", "m"), ("m", "--port", "1"), ("--port", "1", "m"), ("m", "--model", "m")],
)
def test_the_model_is_an_argument_or_a_flag(arguments: tuple[str, ...]) -> None:
    assert parse(*arguments).engine.model.model == "m"


@pytest.mark.parametrize("arguments", [("--max-logprobs", "-1"), ("--max-logprobs=-1",)])
def test_minus_one_lets_every_alternative_be_asked_for(arguments: tuple[str, ...]) -> None:
    assert parse(*arguments).server.max_logprobs == -1
    with pytest.raises(ConfigError, match="--max-logprobs must be a whole number of at least -1"):
        parse("--max-logprobs", "-2")


def test_two_different_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="model is given twice: 'a' and --model 'b'"):
        parse("a", "--model", "b")


@pytest.mark.parametrize(("flag", "variable", "key"), list(product([False, True], repeat=3)))
def test_the_nearest_source_wins(flag: bool, variable: bool, key: bool, tmp_path: Path) -> None:
    arguments, environ = [], {}
    if key:
        file = tmp_path / "serve.json"
        file.write_text(json.dumps({"max-num-seqs": 3, "host": "from-file"}))
        arguments += ["--config", str(file)]
    if variable:
        environ["NORIA_MAX_NUM_SEQS"] = "2"
    if flag:
        arguments += ["--max-num-seqs", "1"]
    options = parse(*arguments, environ=environ)
    assert options.engine.scheduler.max_num_seqs == (1 if flag else 2 if variable else 3 if key else 128)
    assert options.server.host == ("from-file" if key else "127.0.0.1")


def example_of(setting: Setting) -> str:
    if setting.about.kind is MAPPING:
        return '{"a": 1}'
    return str(max(1, int(setting.about.low or 0)))


def test_every_setting_can_come_from_its_environment_name() -> None:
    texts = {"several": "a,b", "enable_prefix_caching": "off", "host": "::1", "root_path": "/a"}
    for setting in settings_of(ServeOptions):
        if setting.name == "operating_point":
            continue  # a file that is read at once: see below
        several = "*,http://b" if setting.about.kind is ORIGIN else "a,b"
        text = several if setting.about.several is not Several.NO else texts.get(setting.name)
        if text is None:
            text = str(setting.about.choices[-1]) if setting.about.choices else example_of(setting)
        options = parse(environ={setting.environment: text})
        assert options != ServeOptions() or setting.read(text, "") == setting.default, setting.name


@pytest.mark.parametrize("flag", ["--num-threads", "--threads"])
def test_threads_may_be_asked_for_by_either_name(flag: str, tmp_path: Path) -> None:
    assert parse(flag, "3").engine.threads.num_threads == 3
    file = tmp_path / "serve.json"
    file.write_text(json.dumps({flag.removeprefix("--"): 2}))
    assert parse("--config", str(file)).engine.threads.num_threads == 2


def test_foreign_environment_names_stand_in_but_do_not_override() -> None:
    assert parse(environ={"VLLM_API_KEY": "v"}).server.api_key == ("v",)
    assert parse(environ={"VLLM_API_KEY": "v", "NORIA_API_KEY": "n"}).server.api_key == ("n",)
    assert parse(environ={"OMP_NUM_THREADS": "3"}).engine.threads.num_threads == 3


def test_what_kubernetes_injects_for_a_service_of_this_name_is_no_setting() -> None:
    environ = {
        "NORIA_PORT": "tcp://10.0.0.1:8000",
        "NORIA_SERVICE_HOST": "10.0.0.1",
        "NORIA_PORT_8000_TCP": "x",
    }
    assert parse(environ=environ) == ServeOptions()


def test_an_empty_key_is_told_as_such() -> None:
    with pytest.raises(ConfigError, match=r"^--api-key must be text, got ''$"):
        parse("--api-key", "")


def test_an_empty_variable_is_unset() -> None:
    assert parse(environ={"NORIA_API_KEY": "", "NORIA_PORT": "", "NORIA_CONFIG": ""}) == ServeOptions()


def test_a_wrong_value_names_where_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    file.write_text('{"block-size": 7}')
    with pytest.raises(ConfigError) as caught:
        parse("--port", "x", environ={"NORIA_SEED": "y", "NORIA_CONFIG": str(file)})
    assert [line.split(" must be ")[0] for line in str(caught.value).splitlines()[1:]] == [
        "- NORIA_SEED (environment)",
        f"- block-size (in {file})",
        "- --port",
    ]


def test_yaml_and_json_files_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"model": "m", "api_key": ["a", "b"], "enable-chunked-prefill": false}')
    (tmp_path / "s.yaml").write_text("model: m\napi_key: [a, b]\nenable-chunked-prefill: off\n")
    assert parse("--config", str(tmp_path / "s.yaml")) == parse("--config", str(tmp_path / "s.json"))


def test_an_empty_yaml_file_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "s.yml").write_text("# nothing yet\n")
    assert parse("--config", str(tmp_path / "s.yml")) == ServeOptions()


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("gone.yaml", None, "cannot read the config file"),
        ("binary.yaml", b"\xff\xfe\x00", "cannot read the config file"),
        ("list.yaml", b"- port\n", "must hold a mapping of settings, got a list"),
        ("number.json", b"7", "must hold a mapping of settings, got a int"),
        ("cut.json", b'{"port": ', "is not valid JSON"),
        ("cut.yaml", b"port: [1", "is not valid YAML"),
        ("typo.yaml", b"prot: 1\n", r"unknown setting 'prot' \(in .*typo.yaml\); did you mean 'port'"),
        ("number_key.yaml", b"7: 1\n", "unknown setting 7"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_clear_error(
    tmp_path: Path, name: str, content: bytes | None, fault: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=fault) as caught:
        parse("--config", str(tmp_path / name))
    assert name in str(caught.value)


def test_without_a_yaml_parser_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text("port: 1\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"PyYAML.*not installed.*as JSON"):
        parse("--config", str(tmp_path / "s.yaml"))


def test_help_names_every_flag_its_default_and_its_variable() -> None:
    words = " ".join(parser().format_help().split())
    for setting in settings_of(ServeOptions):
        assert all(flag in words for flag in (setting.flag, *setting.about.aliases))
        assert f"environment: {', '.join((setting.environment, *setting.about.fallbacks))}]" in words
    assert "==SUPPRESS==" not in words


def test_an_abbreviated_flag_is_not_guessed_at() -> None:
    _, unknown = parser().parse_known_args(["--max-num-s", "3"])
    with pytest.raises(ConfigError, match="unknown flag --max-num-s; did you mean '--max-num-seqs'"):
        refuse_unknown_arguments(ServeOptions, unknown)


@pytest.mark.parametrize("flag", ["--tensor-parallel-size", "-tp", "--no-enforce-eager", "--load-format=awq"])
def test_a_flag_of_vllm_that_noria_lacks_is_refused_by_name(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag.split('=')[0]} is a flag of vLLM"):
        refuse_unknown_arguments(ServeOptions, [flag, "2"])


@pytest.mark.parametrize("flag", ["--enable-request-id-headers", "--enable-server-load-tracking"])
def test_a_flag_of_vllm_for_what_noria_always_does_is_called_moot(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag} asks for what Noria always does; leave it out"):
        refuse_unknown_arguments(ServeOptions, [flag])


def test_a_flag_that_noria_has_is_not_called_foreign() -> None:
    for setting in settings_of(ServeOptions):
        with pytest.raises(ConfigError, match=r"^unknown flag"):
            refuse_unknown_arguments(ServeOptions, [setting.flag])


def test_leftovers_of_any_kind_are_refused() -> None:
    refuse_unknown_arguments(ServeOptions, [])
    with pytest.raises(ConfigError, match="unexpected argument 'second-model'"):
        refuse_unknown_arguments(ServeOptions, ["second-model"])
    with pytest.raises(ConfigError, match=r"^unknown flag --colour; --help shows those there are$"):
        refuse_unknown_arguments(ServeOptions, ["--colour", "red"])


@pytest.fixture
def point(tmp_path: Path) -> str:
    """An operating point of 32 sequences, steps of 256 tokens and a queue of 9 requests."""
    path = str(tmp_path / "point.json")
    settings = {"max_num_seqs": 32, "max_num_batched_tokens": 256, "max_num_queued_reqs": 9, "model": "tuned"}
    write_operating_point(operating_point(**settings), path)
    return path


def test_an_operating_point_holds_where_nothing_is_stated(point: str) -> None:
    options = parse("--operating-point", point)
    assert options.engine.scheduler.max_num_seqs == 32
    assert options.engine.scheduler.max_num_batched_tokens == 256
    assert options.queue.max_num_queued_reqs == 9
    assert (options.engine.model.model, options.engine.point.operating_point) == ("tuned", point)


def test_flag_environment_and_file_win_over_an_operating_point(point: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"max-num-seqs": 8, "operating-point": point}))
    options = parse(
        "--max-num-batched-tokens", "512", "--config", str(path), environ={"NORIA_MODEL": "other"}
    )
    assert options.engine.scheduler.max_num_seqs == 8
    assert options.engine.scheduler.max_num_batched_tokens == 512
    assert options.engine.model.model == "other"
    assert options.queue.max_num_queued_reqs == 9


def test_a_setting_stated_as_its_default_wins_over_an_operating_point_too(point: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"max_num_batched_tokens": None}))
    options = parse("--operating-point", point, "--max-num-seqs", "128", "--config", str(path))
    assert options.engine.scheduler.max_num_seqs == 128
    assert options.engine.scheduler.max_num_batched_tokens is None


def test_a_flag_wins_over_the_model_of_an_operating_point_however_it_is_written(point: str) -> None:
    assert parse("mine", "--operating-point", point).engine.model.model == "mine"


def test_an_operating_point_of_the_environment_is_read(point: str) -> None:
    assert parse(environ={"NORIA_OPERATING_POINT": point}).engine.scheduler.max_num_seqs == 32


def test_an_operating_point_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: .*none"):
        parse("--operating-point", str(tmp_path / "none.json"))
