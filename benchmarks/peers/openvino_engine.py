"""OpenVINO GenAI in a process of its own, reached through pipes: see `openvino_driver.py`."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.children import child, resident_bytes, tail
from benchmarks.peers.engines import LEAN_KV_TOKENS, Command, Situation
from benchmarks.peers.environments import OPENVINO_VERSION
from benchmarks.peers.traffic import EngineFailed, OnDone, Play, Reply

_DRIVER = Path(__file__).with_name("openvino_driver.py")
_LIMIT_S = 900.0


@dataclass(frozen=True)
class OpenVino:
    """python: an interpreter that has openvino_genai."""

    python: Path
    model: Path
    num_threads: int
    log: Path
    name: str = "openvino"
    title: str = "OpenVINO GenAI\n(in process, no HTTP:\nan upper bound)"
    version: str = OPENVINO_VERSION

    @contextmanager
    def start(self, situation: Situation) -> Iterator[OpenVinoSession]:
        command = self.command(situation)
        with self.log.open("ab") as sink:
            sink.write(f"\n$ {command}\n".encode())
            sink.flush()
            with child(command.arguments, sink.fileno(), os.environ, talks=True) as process:
                session = OpenVinoSession(process, self.log)
                session.ready_s = session.hear()["load_s"]
                yield session

    def command(self, situation: Situation) -> Command:
        cache = ("--kv-tokens", str(LEAN_KV_TOKENS)) if situation is Situation.LEAN else ("--cache-gb", "2")
        # -I: the modules beside the script are not for its environment
        arguments = (str(self.python), "-I", str(_DRIVER), str(self.model), str(self.num_threads), *cache)
        return Command(arguments, {})


@dataclass
class OpenVinoSession:
    """ready_s: loading the model, without the start of an interpreter."""

    process: subprocess.Popen[bytes]
    log: Path
    ready_s: float = 0.0

    def play(self, groups: Play, on_done: OnDone) -> list[Reply]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([asdict(group) for group in groups]).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # hear() says why
        while "replies" not in (message := self.hear()):
            on_done()
        return [Reply(**{**raw, "token_s": tuple(raw["token_s"])}) for raw in message["replies"]]

    def hear(self) -> dict[str, Any]:
        """The driver's next message. Raises EngineFailed: it ended, was silent for too long, or reports an error."""
        assert self.process.stdout is not None
        silence = threading.Timer(_LIMIT_S, self.process.kill)
        silence.start()
        try:
            line = self.process.stdout.readline()
        finally:
            silence.cancel()
        if not line:
            raise EngineFailed(f"openvino ended or was stopped, see {self.log}: {tail(self.log)}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise EngineFailed(f"openvino: {message['error']}")
        return message

    def resident_bytes(self) -> int:
        return resident_bytes(self.process.pid)
