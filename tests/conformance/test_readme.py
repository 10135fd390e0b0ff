"""The examples of README.md that talk to a server: copied from it, and run."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from typing import Any

import httpx
import pytest

from support_serving import Serving
from support_source import ROOT

ADDRESS = "http://127.0.0.1:8000"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def curl_commands() -> list[list[str]]:
    """The words of each command, as a shell reads them."""
    blocks = re.findall(r"(?:^    .*\n)+", README, re.MULTILINE)
    return [shlex.split(block.replace("\\\n", "")) for block in blocks if block.startswith("    curl ")]


def python_examples() -> list[str]:
    return [code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if ADDRESS in code]


def send(words: list[str], url: str) -> httpx.Response:
    """What curl sends for these words."""
    program, address, *options = words
    assert program == "curl"
    headers, data = {}, ""
    for flag, value in zip(options[::2], options[1::2], strict=True):
        if flag == "-H":
            name, _, text = value.partition(": ")
            headers[name] = text
        else:
            assert flag == "-d", f"this test knows no {flag}"
            data = value
    return httpx.post(address.replace(ADDRESS, url), headers=headers, content=data, timeout=60)


def said(body: dict[str, Any]) -> str:
    """The answer's text, in whichever protocol."""
    if "choices" in body:
        return body["choices"][0]["message"]["content"]
    content = body["content"] if "content" in body else body["output"][0]["content"]
    return content[0]["text"]


def test_every_protocol_has_an_example() -> None:
    paths = {words[1].removeprefix(ADDRESS) for words in curl_commands()}
    assert {"/v1/chat/completions", "/v1/responses", "/v1/messages"} <= paths
    assert {"openai", "anthropic"} <= {code.split()[1] for code in python_examples()}


def generates(words: list[str]) -> bool:
    return not words[1].endswith(("/embeddings", "/rerank"))


@pytest.mark.parametrize("words", list(filter(generates, curl_commands())), ids=lambda words: words[1])
def test_a_curl_example_is_answered(served: Serving, words: list[str]) -> None:
    answer = send(words, served.url)
    assert answer.status_code == 200
    assert "Tokyo" in said(json.loads(answer.text))


def test_the_curl_examples_that_read_texts_tell_something_of_each(served: Serving) -> None:
    answers = [send(words, served.url).json() for words in curl_commands() if not generates(words)]
    assert [len(answer.get("data") or answer["results"]) for answer in answers] == [2, 2]


@pytest.mark.parametrize("code", python_examples(), ids=lambda code: code.split()[1])
def test_a_python_example_prints_an_answer(served: Serving, code: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace(ADDRESS, served.url), "README.md", "exec"), {})
    assert printed.getvalue().strip()
