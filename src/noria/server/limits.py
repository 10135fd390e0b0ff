"""Bounds that keep one request, one connection or one fault from taking the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in bytes, characters or items as named; durations in seconds.

    max_sequences: prompts * n of one request.
    long_text: texts of more characters than this are tokenised off the event loop.
    template_timeout_s: a chat template that runs longer is given up.
    thread_wait_s: how long a text waits for a thread to prepare it before its request is refused.
    max_hung_templates: how many templates given up may be replaced by a fresh thread.
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
    thread_wait_s: float = 5.0
    max_hung_templates: int = 4
    engine_hang_s: float = 300.0
    connection_keep_alive_s: int = 75
    drain_grace_s: float = 2.0
