"""What every protocol that holds a chat comes down to: messages, how to render them, and what to sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from noria.chats.planning import PLAIN_ANSWERS, Answers, check_answers, plan_chat
from noria.config.abilities import Task
from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams
from noria.server.errors import ApiError
from noria.server.protocol.fields import SharedFields
from noria.server.protocol.prompts import Truncation
from noria.server.protocol.sampling import fit_to_context
from noria.server.service import Service
from noria.server.terms import terms_of
from noria.server.turn import Turn, TurnRequest
from noria.tokenize.chat_template import ChatOptions

_MESSAGES = "messages"  # how those who render blame them


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat, whatever protocol it was asked in.

    messages: as chat templates take them. answers: what is asked of what comes back.
    field: what the protocol calls the messages, to blame it by.
    drops_oldest: where it is too long for the context, its oldest turns are left out.
    """

    messages: Sequence[Mapping[str, Any]]
    options: ChatOptions
    answers: Answers = PLAIN_ANSWERS
    add_special_tokens: bool = False
    field: str = _MESSAGES
    drops_oldest: bool = False


async def encode_chat(service: Service, chat: Chat) -> tuple[int, ...]:
    """The prompt's token ids. Raises ApiError, RequestError as the template does or where the model answers none."""
    service.served.abilities.need(Task.GENERATE)
    try:
        shown = [tool.definition for tool in chat.answers.tools.shown]
        options = replace(chat.options, tools=shown or None)
        prompt = await service.encode_chat(chat.messages, options, chat.add_special_tokens)
    except (ApiError, RequestError) as error:
        raise _in_words_of(chat, error) from None
    if not prompt:
        raise ApiError(f"{chat.field} makes an empty prompt; it needs at least one token", param=chat.field)
    return tuple(prompt)


async def _encode_within(service: Service, chat: Chat, room: int) -> tuple[int, ...]:
    """As encode_chat; a chat that drops its oldest turns leaves out as few as make it no longer than `room` tokens. One
    whose last turn alone is longer stays whole.
    """
    prompt = await encode_chat(service, chat)
    if not chat.drops_oldest or len(prompt) <= room:
        return prompt
    shorter = _with_fewer_turns(chat.messages)
    low, high = 0, len(shorter)  # those before `low` are too long, the one at `high` fits
    while low < high:
        middle = (low + high) // 2
        candidate = await encode_chat(service, replace(chat, messages=shorter[middle]))
        if len(candidate) <= room:
            prompt, high = candidate, middle
        else:
            low = middle + 1
    return prompt


def _with_fewer_turns(messages: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """A chat without its first turn, without its first two, and so on to the last turn alone.

    A turn begins with what the user says. What stands before the first one, the system's words, stays.
    """
    starts = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return [[*messages[: starts[0]], *messages[start:]] for start in starts[1:]]


async def begin_chat(
    service: Service,
    request: Request,
    reply_id: str,
    chat: Chat,
    params: SamplingParams,
    fields: SharedFields,
) -> Turn:
    """Start generating the chat's next message.

    params: without max_tokens the message may take what the context leaves.
    Raises ApiError, RequestError or EngineError before anything is sent.
    """
    check_answers(chat.answers, service.served.formats)
    max_model_len = service.served.max_model_len
    num_output = 1 if params.max_tokens is None else params.max_tokens
    truncation = Truncation.of(fields.truncate_prompt_tokens, fields.truncation_side)
    room = max_model_len - num_output
    prompt = truncation.apply(await _encode_within(service, chat, room), room)
    planned = plan_chat(prompt, params, chat.answers, service.served.formats, service.served.tokenizer)
    fitted = fit_to_context(planned.params, len(planned.prompt), max_model_len, chat.field)
    request_id = service.engine_request_id(reply_id)
    terms = terms_of(request, fields, service.options.request_timeout)
    return await service.begin(TurnRequest(request_id, (planned.prompt,), (fitted,), terms, planned.reading))


def _in_words_of(chat: Chat, error: ApiError | RequestError) -> ApiError | RequestError:
    if error.param != _MESSAGES or chat.field == _MESSAGES:
        return error
    status = error.status if isinstance(error, ApiError) else 400
    return ApiError(str(error), status, chat.field)
