"""Bounds that keep one request, one connection or one fault from taking the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in bytes, characters or items as named; durations in seconds.

    max_sequences: prompts * n of one request.
    long_text: texts of more characters than this are tokenised off the event loop.
    engine_hang_s: an engine that has work and makes no step for this long counts as hung.
    drain_grace_s: what cut requests get, once the shutdown timeout is over, to tell their clients.
    """

    max_body_bytes: int = 32 * 2**20
    max_headers: int = 256
    max_header_bytes: int = 4 * 2**20
    max_prompts: int = 1024
    max_sequences: int = 16384
    max_stop_strings: int = 64
    long_text: int = 4096
    template_timeout_s: float = 30.0
    engine_hang_s: float = 300.0
    connection_keep_alive_s: int = 75
    drain_grace_s: float = 2.0
