"""llm-comply's suites, by name: those that ask for nothing Noria lacks. docs/conformance.md says which are not here,
and why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support_server import Server

# format -> (how its clients state their key, the tests)
SUITES: dict[str, tuple[list[str], list[str]]] = {
    "openai-chat": (
        [],
        [
            "chat-basic-response",
            "chat-system-prompt",
            "chat-multi-turn",
            "chat-tool-calling",
            "chat-streaming-response",
            "chat-streaming-usage",
        ],
    ),
    "open-responses": (
        [],
        [
            "basic-response",
            "system-prompt",
            "multi-turn",
            "tool-calling",
            "streaming-response",
            "streaming-usage",
            "assistant-phase",
            "response-output-phase-schema",
            "compact-response",
            "compact-missing-model",
        ],
    ),
    "anthropic": (
        ["--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01"],
        [
            "anth-basic-response",
            "anth-system-prompt",
            "anth-multi-turn",
            "anth-tool-calling",
            "anth-streaming-response",
            "anth-streaming-usage",
            "anth-error-handling",
        ],
    ),
}


@pytest.mark.parametrize("suite", SUITES)
def test_each_test_of_the_suite_passes(roomy: Server, suite: str) -> None:
    key, names = SUITES[suite]
    program = Path(sys.executable).with_name("llm-comply")
    options = ["-u", f"{roomy.url}/v1", "-k", "x", "-m", "wheel", "-f", ",".join(names), "--json"]
    run = subprocess.run(
        [program, "--format", suite, *options, *key], capture_output=True, text=True, timeout=600
    )
    results = json.loads(run.stdout)["results"]
    assert [result["id"] for result in results] == names
    assert [result for result in results if result["status"] != "passed"] == []
    assert run.returncode == 0
