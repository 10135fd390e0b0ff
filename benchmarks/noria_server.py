"""`noria serve` as a process of its own, for benchmarks that talk to it over HTTP."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.request import ProxyHandler, build_opener

from benchmarks.peers.children import child, wait_until
from benchmarks.peers.servers import free_port

HOST = "127.0.0.1"
DIRECT = build_opener(ProxyHandler({}))  # past a proxy that the environment names
_START_LIMIT_S = 120.0


@contextmanager
def noria_server(arguments: Sequence[str]) -> Iterator[int]:
    """The port of a server that is ready; it has ended when the block is left. arguments: beside the port."""
    port = free_port()
    command = [sys.executable, "-m", "noria", "serve", *arguments, "--port", str(port)]
    with tempfile.TemporaryFile() as log, child(command, log.fileno(), dict(os.environ)) as process:
        is_up = wait_until(lambda: _is_ready(port), process, _START_LIMIT_S)
        assert is_up, f"the server was not ready: status {process.poll()} within {_START_LIMIT_S:.0f} s"
        yield port


def _is_ready(port: int) -> bool:
    try:
        with DIRECT.open(f"http://{HOST}:{port}/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
