"""A server that answers anything with the same few bytes: what a load costs the machine, whoever it is sent to."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.noria_server import HOST

_BACKLOG = 2048
_ANSWER = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@contextmanager
def decoy() -> Iterator[int]:
    """The port of one that has ended when the block is left."""
    with socket.create_server((HOST, 0), backlog=_BACKLOG) as listener:
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener,), daemon=True)
        process.start()
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(_ANSWER)
            except OSError:
                continue  # whoever it was has left
