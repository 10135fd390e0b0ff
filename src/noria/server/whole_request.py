"""A request that came in one piece and is of the simplest kind, read at a glance instead of by a parser's callbacks.

What is not certain to be read as the parser would read it is None, and the parser's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from noria.server.limits import Limits

_HEAD = re.compile(
    rb"POST ((/[\w./~-]*)(?:\?[!\"$-~]+)?) HTTP/1\.1\r\n"
    rb"((?:[\w!#$%&'*+.^`|~-]+:[\t -~\x80-\xff]*\r\n)+)"
    rb"\r\n"
)
_LINE = re.compile(rb"([^:]+):[\t ]*([^\r]*)\r\n")

# A parser makes more of these than a value that can be looked up.
_NOT_SIMPLE = frozenset((b"transfer-encoding", b"upgrade", b"proxy-connection", b"expect"))
_MAX_DIGITS = 19  # of a length: a parser counts no further
_KEEPS_ALIVE = {b"": True, b"keep-alive": True, b"close": False}


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """A POST of HTTP/1.1. target: path and query. headers: in lower case, each once."""

    target: bytes
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    keeps_alive: bool


def whole_request(data: bytes, limits: Limits) -> WholeRequest | None:
    """What `data` is from its first byte to its last."""
    head = _HEAD.match(data)
    if head is None or head.end() > limits.max_header_bytes:
        return None
    lines = _LINE.findall(head[3])
    headers = {name.lower(): value.rstrip() for name, value in lines}
    if len(headers) != len(lines) or len(lines) > limits.max_headers:
        return None
    keeps_alive = _KEEPS_ALIVE.get(headers.get(b"connection", b"").lower())
    if keeps_alive is None or not _NOT_SIMPLE.isdisjoint(headers):
        return None
    length = headers.get(b"content-length", b"")
    if not length.isdigit() or len(length) > _MAX_DIGITS or int(length) != len(data) - head.end():
        return None
    return WholeRequest(head[1], head[2].decode("ascii"), headers, data[head.end() :], keeps_alive)
