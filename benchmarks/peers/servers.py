"""Engines behind HTTP: how each is started, and a session with one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.peers import client
from benchmarks.peers.children import child, resident_bytes, tail, wait_until
from benchmarks.peers.engines import LEAN_KV_TOKENS, MAX_MODEL_LEN, MAX_NUM_SEQS, Command, Situation
from benchmarks.peers.environments import LLAMA_CPP_PYTHON_VERSION, VLLM_VERSION, peers_variables
from benchmarks.peers.traffic import EngineFailed, OnDone, Play, Reply

START_LIMIT_S = 900.0
PLAY_LIMIT_S = 900.0


@dataclass(frozen=True)
class ServerEngine:
    """build: the command for a situation and a port. log: where the server's output goes.

    variables and directory: what it runs with and in.
    """

    name: str
    title: str
    version: str
    build: Callable[[Situation, int], Command]
    log: Path
    variables: Mapping[str, str]
    directory: Path

    @contextmanager
    def start(self, situation: Situation) -> Iterator[ServerSession]:
        port = free_port()
        command = self.build(situation, port)
        with self.log.open("ab") as sink:
            sink.write(f"\n$ {command}\n".encode())
            sink.flush()
            begin_s = time.perf_counter()
            variables = {**self.variables, **command.environment}
            with child(command.arguments, sink.fileno(), variables, self.directory) as process:
                if not wait_until(lambda: _is_healthy(port), process, START_LIMIT_S):
                    status = process.poll()
                    why = "was not ready in time" if status is None else f"ended with status {status}"
                    raise EngineFailed(f"{self.name} {why}, see {self.log}: {tail(self.log)}")
                yield ServerSession(time.perf_counter() - begin_s, port, process)

    def command(self, situation: Situation) -> Command:
        return self.build(situation, 0)


@dataclass
class ServerSession:
    ready_s: float
    port: int
    process: subprocess.Popen[bytes]

    def play(self, groups: Play, on_done: OnDone) -> list[Reply]:
        return client.play(self.port, groups, on_done, PLAY_LIMIT_S)

    def resident_bytes(self) -> int:
        return resident_bytes(self.process.pid)


def noria(model: Path, num_threads: int, log: Path) -> ServerEngine:
    """The noria that this interpreter imports."""

    def build(situation: Situation, port: int) -> Command:
        arguments = [sys.executable, "-m", "noria", "serve", str(model), *_address(port)]
        arguments += ["--served-model-name", client.MODEL_NAME, "--uvicorn-log-level", "warning"]
        arguments += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", str(MAX_NUM_SEQS)]
        arguments += ["--num-threads", str(num_threads)]
        if situation is Situation.LEAN:
            arguments += ["--block-size", "16", "--num-gpu-blocks-override", str(LEAN_KV_TOKENS // 16)]
        else:
            arguments += ["--kv-cache-memory", "2GiB"]
        return Command(tuple(arguments), {})

    return ServerEngine("noria", "Noria", _noria_version(), build, log, os.environ, Path.cwd())


def llama_cpp(server: Path, model: Path, num_threads: int, log: Path) -> ServerEngine:
    slots = {
        Situation.LOAD: ("-c", "65536", "-np", "32", "-b", "2048", "-ub", "512"),
        Situation.FEW: ("-c", "65536", "-np", "8"),
        Situation.LEAN: ("-c", str(LEAN_KV_TOKENS), "-np", "4"),
    }

    def build(situation: Situation, port: int) -> Command:
        arguments = [str(server), "-m", str(model), "-t", str(num_threads), *slots[situation]]
        arguments += ["--no-webui", "--offline", "--alias", client.MODEL_NAME, *_address(port)]
        return Command(tuple(arguments), {})

    version = f"llama-cpp-python {LLAMA_CPP_PYTHON_VERSION}"
    return ServerEngine("llama.cpp", "llama.cpp", version, build, log, peers_variables(), log.parent)


def vllm(python: Path, model: Path, num_threads: int, log: Path) -> ServerEngine:
    cpus = sorted(os.sched_getaffinity(0))[:num_threads]
    base = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(log.parent / "vllm-cache"),
    }

    def build(situation: Situation, port: int) -> Command:
        arguments = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        arguments += ["--dtype", "bfloat16", "--max-model-len", str(MAX_MODEL_LEN)]
        arguments += ["--max-num-seqs", str(MAX_NUM_SEQS), "--served-model-name", client.MODEL_NAME]
        arguments += ["--uvicorn-log-level", "warning", *_address(port)]
        if situation is Situation.LEAN:
            arguments += ["--block-size", "128", "--num-gpu-blocks-override", str(LEAN_KV_TOKENS // 128)]
        return Command(tuple(arguments), base)

    return ServerEngine("vllm", "vLLM CPU\n(bf16)", VLLM_VERSION, build, log, peers_variables(), log.parent)


def _address(port: int) -> tuple[str, ...]:
    return "--host", client.HOST, "--port", str(port)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((client.HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_healthy(port: int) -> bool:
    """One GET /health over a plain socket; anything but 200 is not yet."""
    try:
        with socket.create_connection((client.HOST, port), timeout=5) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(64).split()[1:2] == [b"200"]
    except OSError:
        return False


def _noria_version() -> str:
    """Installed version, and the commit where this is a checkout."""
    root = Path(__file__).resolve().parents[2]
    git = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True)
    commit = git.stdout.decode().strip() if git.returncode == 0 else "no commit"
    try:
        return f"{metadata.version('noria')} ({commit})"
    except metadata.PackageNotFoundError:
        return commit
