"""Reads many streams at once, for as little of the processors as reading takes: they are the server's, too."""

from __future__ import annotations

import json
import multiprocessing
import selectors
import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from urllib.parse import urlsplit


def stream_all(url: str, texts: Sequence[str], num_tokens: int) -> float:
    """Stream a completion of every text at once, and read them to their ends, from a process of its own.

    Returns the seconds of processor time that the process took for it.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    client = context.Process(target=_read_all, args=(url, texts, num_tokens, sender))
    client.start()
    sender.close()
    client.join()
    assert client.exitcode == 0, f"the client ended with {client.exitcode}"
    return float(receiver.recv())


def _read_all(url: str, texts: Sequence[str], num_tokens: int, sender: Connection) -> None:
    before_s = time.process_time()
    selector = selectors.DefaultSelector()
    for text in texts:
        connection = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port))
        connection.sendall(_message(text, num_tokens))
        selector.register(connection, selectors.EVENT_READ, (connection, []))
    while selector.get_map():
        for key, _ in selector.select():
            stream, parts = key.data
            part = stream.recv(65536)
            if part:
                parts.append(part)
                continue
            selector.unregister(stream)
            stream.close()
            _check(b"".join(parts))
    sender.send(time.process_time() - before_s)


def _message(text: str, num_tokens: int) -> bytes:
    body = {"prompt": text, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    content = json.dumps(body).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: noria\r\nContent-Type: application/json\r\nConnection: close"
    )
    return f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def _check(answer: bytes) -> None:
    status = answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/1.1 ") else b"none"
    assert status == b"200", f"a stream was answered with the status {status!r}"
    assert b"data: [DONE]" in answer, f"a stream ended after {len(answer)} bytes, without its last words"
