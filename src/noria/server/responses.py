"""POST /v1/responses. Nothing is stored: every request holds its whole conversation."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noria.chats.planning import Answers
from noria.chats.tools import response_tools
from noria.sampling.params import SamplingParams
from noria.server.answer import answer
from noria.server.chat_options import template_variables
from noria.server.chat_turn import Chat, begin_chat
from noria.server.common_fields import check_shared, reply_head
from noria.server.encoders.reply import Reply, ReplyOptions
from noria.server.encoders.responses import ResponsesEncoder
from noria.server.encoders.token_names import TokenNames
from noria.server.protocol.body import read_body
from noria.server.protocol.response_input import input_messages
from noria.server.protocol.responses import ResponsesRequest, check_fields
from noria.server.protocol.sampling import sampling_params
from noria.server.protocol.structured import grammar_of
from noria.server.service import Service
from noria.tokenize.chat_template import ChatOptions

# Of a tool, by its type: told as null.
_NOT_STATED = {
    "function": dict.fromkeys(("description", "parameters", "strict")),
    "custom": dict.fromkeys(("description", "format")),
}


async def create_response(service: Service, request: Request) -> Response:
    """Raises ApiError, RequestError or EngineError before anything is sent."""
    fields = await read_body(request, ResponsesRequest)
    model = service.served.resolve(fields.model)
    check_fields(fields)
    check_shared(fields)
    params = _sampling(fields, service)
    effort = (fields.reasoning or {}).get("effort")
    variables = template_variables(fields.chat_template_kwargs, effort, service.options.answers)
    messages = input_messages(fields.input, fields.instructions)
    tools = response_tools(fields.tools, fields.tool_choice, fields.parallel_tool_calls)
    answers = Answers(tools, thinking_token_budget=fields.thinking_token_budget)
    rendering = ChatOptions(template_kwargs=variables)
    chat = Chat(messages, rendering, answers, field="input", drops_oldest=fields.truncation == "auto")

    head = reply_head(request, "resp_", model)
    turn = await begin_chat(service, request, head.id, chat, params, fields)
    options = ReplyOptions(
        cached_tokens=service.options.enable_prompt_tokens_details, logprobs=fields.wants_logprobs
    )
    names = TokenNames(service.served.tokenizer, service.options.answers.return_tokens_as_token_ids)
    reply, settings = Reply(turn, head, options, names), _settings(fields, params)
    encoder = ResponsesEncoder(reply, settings, fields.wants_sealed_reasoning)
    return await answer(service, request, fields, turn, encoder)


def _sampling(fields: ResponsesRequest, service: Service) -> SamplingParams:
    return sampling_params(
        fields,
        service.served,
        max_tokens=fields.max_output_tokens,
        logprobs=(fields.top_logprobs or 0) if fields.wants_logprobs else None,
        max_stop_strings=service.limits.max_stop_strings,
        spellings={"max_tokens": "max_output_tokens", "logprobs": "top_logprobs"},
        grammar=grammar_of(fields.structured_outputs, (fields.text or {}).get("format"), "text.format"),
    )


def _settings(fields: ResponsesRequest, params: SamplingParams) -> dict[str, Any]:
    """What a response tells of the request that made it."""
    reasoning = fields.reasoning or {}
    return {
        "background": False,
        "frequency_penalty": params.frequency_penalty,
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "max_tool_calls": None,
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "presence_penalty": params.presence_penalty,
        "previous_response_id": None,
        "prompt_cache_key": fields.prompt_cache_key,
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": fields.safety_identifier,
        "service_tier": "default",
        "store": False,
        "temperature": params.temperature,
        "text": {"format": (fields.text or {}).get("format") or {"type": "text"}},
        "tool_choice": fields.tool_choice or "auto",
        "tools": [{**_NOT_STATED.get(tool["type"], {}), **tool} for tool in fields.tools or ()],
        "top_logprobs": fields.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": fields.truncation or "disabled",
        "user": fields.user,
    }
