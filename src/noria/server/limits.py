"""Bounds that keep one request, one connection or one fault from taking the server."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.limits import LimitOptions


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in bytes, characters or items as named; durations in seconds.

    max_sequences: prompts * n of one request. max_inputs: texts of one that are read and not continued.
    max_numbers: of a reply, where each token of a text has some of its own.
    max_json_depth: of the body.
    long_text: texts of more characters than this are tokenised off the event loop.
    template_timeout_s: a chat template that runs longer is given up.
    thread_wait_s: how long a text waits for a thread to prepare it before its request is refused.
    max_hung_templates: how many templates given up may be replaced by a fresh thread.
    head_timeout_s, body_timeout_s: what has not come by then is not waited for any longer; see LimitOptions.
    send_timeout_s: for how long a client may read nothing.
    max_unread_tokens: of each output of a stream, that its client is too slow to read.
    keys_look_every_s: how often the file of API keys is looked at for changes.
    drain_grace_s: what cut requests get, once the shutdown timeout is over, to tell their clients.
    """

    max_body_bytes: int = 32 * 2**20
    max_json_depth: int = 128
    max_headers: int = 256
    max_header_bytes: int = 4 * 2**20
    max_prompts: int = 1024
    max_inputs: int = 2048
    max_numbers: int = 2**25  # 128 MiB, and some 700 as JSON
    max_sequences: int = 16384
    max_stop_strings: int = 64
    long_text: int = 4096
    template_timeout_s: float = 30.0
    thread_wait_s: float = 5.0
    max_hung_templates: int = 4
    connection_keep_alive_s: int = 75
    head_timeout_s: float = 60.0
    body_timeout_s: float = 60.0
    send_timeout_s: float = 60.0
    max_unread_tokens: int = 4096
    keys_look_every_s: float = 1.0
    drain_grace_s: float = 2.0

    @classmethod
    def of(cls, options: LimitOptions) -> Limits:
        """Those that a user may set, as they were set."""
        return cls(
            max_body_bytes=options.max_request_body_size,
            max_json_depth=options.max_json_depth,
            max_headers=options.max_header_count,
            max_header_bytes=options.max_header_size,
            max_prompts=options.max_prompts,
            max_inputs=options.max_inputs,
            max_sequences=options.max_n,
            max_stop_strings=options.max_stop_strings,
            template_timeout_s=options.chat_template_timeout,
            connection_keep_alive_s=options.http_timeout_keep_alive,
            head_timeout_s=options.request_head_timeout,
            body_timeout_s=options.request_body_timeout,
            send_timeout_s=options.send_timeout,
            max_unread_tokens=options.max_unread_tokens,
        )
