"""What chat and text completions do alike with the fields they share, before anything is generated."""

from __future__ import annotations

import time

from starlette.requests import Request

from noria.server.encoders.reply import Reply, ReplyHead, ReplyOptions
from noria.server.encoders.token_names import TokenNames
from noria.server.errors import ApiError
from noria.server.middleware import is_request_id
from noria.server.protocol.fields import GenerationFields, SharedFields
from noria.server.protocol.unsupported import check_unhonoured
from noria.server.service import Service
from noria.server.terms import TermsFields
from noria.server.turn import Turn

_MAX_SALT = 128
_SALT_TABOO = "@/\\\0"
_MAX_PRIORITY = 2**31


def check_common(fields: GenerationFields) -> None:
    """Raises ApiError for fields that cannot be honoured or contradict each other."""
    check_unhonoured(fields.model_extra or {})
    if fields.stream_options is not None and not fields.stream:
        raise ApiError("stream_options goes with `stream: true` only", param="stream_options")
    if fields.stream and fields.prompt_logprobs is not None:
        raise ApiError("prompt_logprobs cannot be streamed; leave `stream` out", param="prompt_logprobs")
    check_shared(fields)
    if fields.request_id is not None and not is_request_id(fields.request_id):
        raise ApiError(
            "request_id must have 1 to 128 printable ASCII characters and no spaces", param="request_id"
        )


def check_shared(fields: SharedFields) -> None:
    """Raises ApiError for values that no sampling parameter checks."""
    check_terms(fields)
    if fields.stream_interval is not None and fields.stream_interval < 1:
        raise ApiError(
            f"stream_interval must be at least 1, got {fields.stream_interval}", param="stream_interval"
        )


def check_terms(fields: TermsFields) -> None:
    """Raises ApiError for terms that are none."""
    salt = fields.cache_salt
    if salt is not None and not (0 < len(salt) <= _MAX_SALT and not set(salt) & set(_SALT_TABOO)):
        raise ApiError(
            f"cache_salt must have 1 to {_MAX_SALT} characters, none of them @ / \\ or NUL",
            param="cache_salt",
        )
    if fields.priority is not None and not -_MAX_PRIORITY <= fields.priority < _MAX_PRIORITY:
        raise ApiError(
            f"priority must be at least {-_MAX_PRIORITY} and below {_MAX_PRIORITY}", param="priority"
        )


def reply_head(request: Request, prefix: str, model: str, stated_id: str | None = None) -> ReplyHead:
    """See reply_id."""
    return ReplyHead(reply_id(request, prefix, stated_id), int(time.time()), model)


def reply_id(request: Request, prefix: str, stated_id: str | None = None) -> str:
    """prefix: of the id, before the client's own or the one that X-Request-Id answers.

    stated_id: the client's own, if a field states one.
    """
    own_id = request.headers.get("x-request-id", "")
    if not is_request_id(own_id):
        own_id = stated_id or request.state.request_id
    return f"{prefix}{own_id}"


def reply_over(
    turn: Turn, service: Service, fields: GenerationFields, head: ReplyHead, logprobs: bool
) -> Reply:
    """What the turn's encoder builds on. logprobs: whether the reply tells them."""
    options = _reply_options(fields, service, logprobs)
    as_ids = fields.return_tokens_as_token_ids
    if as_ids is None:
        as_ids = service.options.answers.return_tokens_as_token_ids
    names = TokenNames(service.served.tokenizer, as_ids)
    return Reply(turn, head, options, names)


def _reply_options(fields: GenerationFields, service: Service, logprobs: bool) -> ReplyOptions:
    stream_options = fields.stream_options
    asked = stream_options is not None and bool(stream_options.include_usage)
    include_usage = asked or service.options.answers.enable_force_include_usage
    return ReplyOptions(
        include_usage=include_usage,
        continuous_usage=include_usage and bool(stream_options and stream_options.continuous_usage_stats),
        cached_tokens=service.options.enable_prompt_tokens_details,
        logprobs=logprobs,
        prompt_logprobs=fields.prompt_logprobs is not None,
        token_ids=bool(fields.return_token_ids),
    )
