"""The `noria` command as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
SMALL = ["--max-model-len", "256", "--num-gpu-blocks-override", "64"]


def noria(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "noria", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        env={**ENVIRONMENT, **environment},
    )


def test_generate_prints_the_completion_of_a_prompt(tiny_model: Path) -> None:
    one = noria("generate", tiny_model, *SMALL, "-p", "the fox", "--max-tokens", 8, "--temperature", 0)
    assert one.returncode == 0, one.stderr
    assert one.stdout.strip()
    again = noria("generate", tiny_model, *SMALL, "-p", "the fox", "--max-tokens", 8, "--temperature", 0)
    assert again.stdout == one.stdout


def test_generate_reads_prompts_from_standard_input_and_writes_json_and_a_trace(
    tiny_model: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "steps.json"
    arguments = ["--json", "--max-tokens", 6, "--ignore-eos", "--n", 2, "--trace", trace]
    run = noria("generate", tiny_model, *SMALL, *arguments, stdin="the fox\n\nthe dog\n")
    assert run.returncode == 0, run.stderr
    records = [json.loads(line) for line in run.stdout.splitlines()]
    assert [record["prompt"] for record in records] == ["the fox", "the dog"]
    assert all(len(output["token_ids"]) == 6 for record in records for output in record["outputs"])
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["name"].startswith("step ") for event in events) >= 6


def test_a_chat_goes_on_over_several_turns(tiny_model: Path) -> None:
    turns = "the fox\n/reset\nthe dog\n/exit\nnever said\n"
    run = noria("chat", tiny_model, *SMALL, "--max-tokens", 4, "--temperature", 0, stdin=turns)
    assert run.returncode == 0, run.stderr
    alone = noria("chat", tiny_model, *SMALL, "--max-tokens", 4, "--temperature", 0, stdin="the dog\n")
    assert run.stdout.endswith(alone.stdout)
    assert len(run.stdout) > len(alone.stdout)


def test_a_chat_from_a_pipe_fails_when_a_message_is_refused_and_goes_on(tiny_model: Path) -> None:
    long = " ".join(["fox"] * 400)
    run = noria("chat", tiny_model, *SMALL, "--max-tokens", 4, "--temperature", 0, stdin=f"{long}\nthe dog\n")
    alone = noria("chat", tiny_model, *SMALL, "--max-tokens", 4, "--temperature", 0, stdin="the dog\n")
    assert run.returncode == 1
    assert "maximum context length is 256" in run.stderr
    assert run.stdout == alone.stdout


def test_output_that_cannot_be_written_is_one_line(tiny_model: Path, tmp_path: Path) -> None:
    asked = ["generate", tiny_model, *SMALL, "-p", "the fox", "--max-tokens", 4]
    trace = noria(*asked, "--trace", tmp_path / "nowhere" / "x.json")
    assert trace.returncode == 2
    assert "cannot be written: No such file or directory" in trace.stderr
    command = [sys.executable, "-m", "noria", *map(str, asked)]
    with open("/dev/full", "w") as device:
        full = subprocess.run(command, stdout=device, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert full.returncode == 1
    assert "No space left on device" in full.stderr
    assert "Traceback" not in trace.stderr + full.stderr


def test_a_terminal_of_few_characters_gets_question_marks(tiny_model: Path) -> None:
    asked = [
        "generate",
        tiny_model,
        *SMALL,
        "-p",
        "the fox",
        "--max-tokens",
        40,
        "--ignore-eos",
        "--sampling-seed",
        1,
    ]
    run = noria(*asked, PYTHONIOENCODING="ascii")
    assert run.returncode == 0, run.stderr
    assert run.stdout.isascii()


def test_help_needs_neither_server_nor_kernels() -> None:
    code = "import sys; from noria.cli.main import main\ntry: main(['serve', '--help'])\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'starlette', 'numpy', 'rich'} & set(sys.modules); assert not heavy, heavy"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr


def test_a_model_that_was_not_pulled_says_how_to_get_it(tmp_path: Path) -> None:
    for command in (["serve"], ["chat"], ["generate", "-p", "x"]):
        run = noria(*command, NORIA_CACHE=str(tmp_path))
        assert run.returncode == 1
        assert "noria pull smollm2" in run.stderr
        assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-model-lenn", "5"], r"unknown flag --max-model-lenn; did you mean '--max-model-len'"),
        (["--tensor-parallel-size", "2"], r"--tensor-parallel-size is a flag of vLLM"),
        (["--temperature", "-1"], r"--temperature must be a number of at least 0, got '-1'"),
        (["--max-model-len", "100000"], r"100000 is more than the \d+ tokens that the model can attend to"),
        (["--kv-cache-memory", "1KiB"], r"1\.0? ?KiB|1024"),
        (
            ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "16"],
            r"max_num_batched_tokens \(16\) is less than max_model_len",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(
    tiny_model: Path, arguments: list[str], message: str
) -> None:
    run = noria("generate", tiny_model, "-p", "x", *arguments)
    assert run.returncode == 2, run.stderr
    assert re.search(message, run.stderr), run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("command", ["", "serve", "chat", "generate", "pull"])
def test_help_teaches(command: str) -> None:
    run = noria(*command.split(), "--help")
    assert run.returncode == 0
    assert f"noria {command}".strip() in run.stdout
    assert re.search("examples:|start here:", run.stdout)


def test_serve_shows_its_table_answers_and_ends_at_a_signal(tiny_model: Path) -> None:
    from openai import OpenAI

    command = [sys.executable, "-m", "noria", "serve", str(tiny_model), "--port", "0", *SMALL]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    watchdog = threading.Timer(240, server.kill)  # so that a silent server ends the test
    watchdog.start()
    try:
        lines, url = [], None
        for line in server.stderr:
            lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                url = found[0]
                break
        assert url is not None, "".join(lines)
        table = "".join(lines)
        assert re.search(r"KV cache .*64", table)
        assert re.search(r"max_model_len +256 +asked for", table)
        client = OpenAI(base_url=f"{url}/v1", api_key="none")
        [model] = client.models.list().data
        assert model.id == str(tiny_model)
        answer = client.completions.create(model=model.id, prompt="the", max_tokens=3)
        assert answer.usage.completion_tokens <= 3
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        assert server.wait(timeout=60) == 0
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()
        server.stderr.close()


def test_a_server_with_a_file_of_keys_follows_it_and_outlives_a_hang_up(
    tiny_model: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"old": "sk-old"}')
    command = [sys.executable, "-m", "noria", "serve", str(tiny_model), "--port", "0", *SMALL]
    command += ["--api-keys-file", str(keys)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    watchdog = threading.Timer(240, server.kill)
    watchdog.start()
    try:
        found = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in server.stderr)
        url = next(match[0] for match in found if match)
        assert _status(url, "sk-old") == 200
        keys.write_text('{"new": "sk-new"}')
        server.send_signal(signal.SIGHUP)
        deadline_s = time.monotonic() + 60
        while _status(url, "sk-new") == 401:
            assert time.monotonic() < deadline_s, "the new key is not known"
        assert _status(url, "sk-old") == 401
        assert server.poll() is None
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()
        server.stderr.close()


def _status(url: str, key: str) -> int:
    known = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{url}/v1/models", headers=known, timeout=60).status_code
