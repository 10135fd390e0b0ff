"""Starts the server on the default model, asks it a question with the stock OpenAI client, stops it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from openai import OpenAI

QUESTION = "What is the capital of Japan?"
ANSWER = "Tokyo"
READY_WITHIN_S = 120


def main() -> int:
    noria = [sys.executable, "-m", "noria"]
    subprocess.run([*noria, "pull", "smollm2"], check=True)
    port = free_port()
    flags = ["--port", str(port), "--max-model-len", "2048", "--uvicorn-log-level", "warning"]
    server = subprocess.Popen([*noria, "serve", *flags])
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/health", server)
        answer = ask(f"http://127.0.0.1:{port}/v1")
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(timeout=60)
    if ANSWER not in answer:
        print(f"\nThe answer does not name {ANSWER}: {answer!r}", file=sys.stderr)
        return 1
    return status


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(url: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode} before it was ready")
        try:
            urllib.request.urlopen(url, timeout=1)
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise SystemExit(f"the server was not ready within {READY_WITHIN_S} s")


def ask(base_url: str) -> str:
    client = OpenAI(base_url=base_url, api_key="none needed")
    print(f"\nQ: {QUESTION}\nA: ", end="", flush=True)
    stream = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=48,
        stream=True,
    )
    answer = ""
    for chunk in stream:
        text = chunk.choices[0].delta.content or ""
        answer += text
        print(text, end="", flush=True)
    print("\n")
    return answer


if __name__ == "__main__":
    sys.exit(main())
