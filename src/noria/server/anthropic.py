"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response

from noria.chats.planning import Answers
from noria.chats.tools import message_tools
from noria.sampling.params import SamplingParams
from noria.server.answer import answer
from noria.server.chat_options import template_variables
from noria.server.chat_turn import Chat, begin_chat, encode_chat
from noria.server.common_fields import check_shared, reply_head
from noria.server.encoders.anthropic import AnthropicEncoder
from noria.server.protocol.anthropic import CountTokensRequest, MessagesRequest, check_fields
from noria.server.protocol.anthropic_messages import chat_messages
from noria.server.protocol.body import read_body
from noria.server.protocol.sampling import sampling_params
from noria.server.protocol.structured import grammar_of
from noria.server.service import Service
from noria.tokenize.chat_template import ChatOptions


async def create_message(service: Service, request: Request) -> Response:
    """Raises ApiError, RequestError or EngineError before anything is sent."""
    fields = await read_body(request, MessagesRequest)
    model = service.served.resolve(fields.model)
    check_fields(fields)
    check_shared(fields)
    params = _sampling(fields, service)
    chat = _chat(service, fields)

    head = reply_head(request, "msg_", model)
    turn = await begin_chat(service, request, head.id, chat, params, fields)
    encoder = AnthropicEncoder(turn, head, service.options.enable_prompt_tokens_details)
    return await answer(service, request, fields, turn, encoder)


async def count_message_tokens(service: Service, request: Request) -> Response:
    """How long a prompt the same fields would make. Raises ApiError or RequestError."""
    fields = await read_body(request, CountTokensRequest)
    service.served.resolve(fields.model)
    check_fields(fields)
    prompt = await encode_chat(service, _chat(service, fields))
    return Response(orjson.dumps({"input_tokens": len(prompt)}), media_type="application/json")


def _sampling(fields: MessagesRequest, service: Service) -> SamplingParams:
    return sampling_params(
        fields,
        service.served,
        max_tokens=fields.max_tokens,
        logprobs=None,
        max_stop_strings=service.limits.max_stop_strings,
        spellings={"stop": "stop_sequences"},
        grammar=grammar_of(
            fields.structured_outputs, (fields.output_config or {}).get("format"), "output_config.format"
        ),
    )


def _chat(service: Service, fields: CountTokensRequest) -> Chat:
    messages = chat_messages(fields.messages, fields.system)
    effort = (fields.output_config or {}).get("effort")
    variables = template_variables(
        fields.chat_template_kwargs, effort, service.options.answers, fields.thinks
    )
    # A last message by the assistant is the beginning of the answer.
    is_begun = bool(messages) and messages[-1]["role"] == "assistant"
    answers = Answers(
        message_tools(fields.tools, fields.tool_choice), "toolu_", thinking_token_budget=_budget(fields)
    )
    options = ChatOptions(continue_final_message=is_begun, template_kwargs=variables)
    return Chat(messages, options, answers)


def _budget(fields: CountTokensRequest) -> int | None:
    """Tokens of reasoning: what the protocol calls it counts before our own word for it."""
    own = fields.thinking_token_budget if isinstance(fields, MessagesRequest) else None
    stated = (fields.thinking or {}).get("budget_tokens") if fields.thinks else None
    return own if stated is None else stated
