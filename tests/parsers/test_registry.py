from __future__ import annotations

from pathlib import Path

import pytest

from noria.config.errors import ConfigError, PluginError
from noria.parsers.formats import REASONING_FORMATS, TOOL_FORMATS
from noria.parsers.registry import reasoning_format, tool_format

TEMPLATES = {
    "hermes": "{% for tool in tools %}<tool_call>{% endfor %}",
    "qwen3_coder": "{% if tools %}<tool_call>\n<function=f>\n<parameter=p>{% endif %}",
    "glm45": "{% if tools %}<tool_call>f\n<arg_key>{% endif %}",
    "mistral": "{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]",
    "llama3_json": '{% if tools %}<|python_tag|>{"name": f, "parameters": p}{% endif %}',
    "llama4_pythonic": "{% if tools %}<|python_start|>{% endif %}",
    "deepseek_v3": "{% if tools %}function<｜tool▁sep｜>f\n```json{% endif %}",
    "deepseek_v31": "{% if tools %}f<｜tool▁sep｜>{}{% endif %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_template_tells_what_its_model_writes(name: str) -> None:
    assert tool_format("auto", TEMPLATES[name]) is TOOL_FORMATS[name]


def test_a_template_without_tools_gets_those_of_hermes_and_an_unknown_one_none() -> None:
    assert tool_format("auto", "{{ messages }}") is TOOL_FORMATS["hermes"]
    assert tool_format("auto", None) is TOOL_FORMATS["hermes"]
    assert tool_format("auto", "{{ tools }} in a way of its own") is None
    assert tool_format("none", TEMPLATES["hermes"]) is None


def test_a_template_tells_how_its_model_reasons() -> None:
    assert reasoning_format("auto", "{{ x.split('</think>') }}") is REASONING_FORMATS["deepseek_r1"]
    assert reasoning_format("auto", "[THINK]") is REASONING_FORMATS["mistral"]
    assert reasoning_format("auto", "{{ messages }}") is None
    assert reasoning_format("auto", None) is None
    assert reasoning_format("none", "</think>") is None
    assert reasoning_format("qwen3", None) is REASONING_FORMATS["deepseek_r1"]


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"tool_call_parser is 'hermse'; known are auto, none, .*hermes"):
        tool_format("hermse", None)
    with pytest.raises(ConfigError, match=r"reasoning_parser is 'deep'; known are auto, none, .*qwen3"):
        reasoning_format("deep", None)


PLUGIN = """
from noria.parsers.bodies import json_calls
from noria.parsers.formats import ToolFormat

TOOL_FORMATS = {"mine": ToolFormat(json_calls, ("<<",), (">>",))}
"""


def test_a_file_brings_formats_of_its_own(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    for name in ("mine", "auto"):
        form = tool_format(name, TEMPLATES["hermes"], str(plugin))
        assert form is not None and form.markers == ("<<", ">>")
    assert tool_format("hermes", None, str(plugin)) is TOOL_FORMATS["hermes"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("", "must have TOOL_FORMATS"),
        ("TOOL_FORMATS = {'x': 1}", "must be a noria.parsers.formats.ToolFormat, got int"),
    ],
)
def test_a_file_that_brings_none_is_refused_in_words(tmp_path: Path, source: str, words: str) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(source)
    with pytest.raises(ConfigError, match=words):
        tool_format("auto", None, str(plugin))
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        tool_format("auto", None, str(tmp_path / "none.py"))


def test_an_installed_package_brings_formats_under_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brought.py").write_text(f"{PLUGIN}\nMINE = TOOL_FORMATS['mine']\n")
    info = tmp_path / "brought-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    points = "[noria.tool_parsers]\nours = brought:MINE\nwrong = brought:TOOL_FORMATS\ngone = missing:MINE\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    form = tool_format("ours", None)
    assert form is not None and form.markers == ("<<", ">>")
    with pytest.raises(
        ConfigError, match=r"entry point wrong = .*tool_parsers.* of brought 1 must be .* got dict"
    ):
        tool_format("wrong", None)
    with pytest.raises(PluginError, match=r"entry point gone = .* of brought 1 failed: ModuleNotFoundError"):
        tool_format("gone", None)
    with pytest.raises(ConfigError, match=r"known are .*ours"):
        tool_format("others", None)
