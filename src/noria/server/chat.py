"""POST /v1/chat/completions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from noria.chats.planning import Answers
from noria.chats.tools import chat_tools
from noria.sampling.params import SamplingParams
from noria.server.answer import answer
from noria.server.chat_options import chat_options
from noria.server.chat_turn import Chat, begin_chat
from noria.server.common_fields import check_common, reply_head, reply_over
from noria.server.encoders.chat import ChatEncoder, ChatWords
from noria.server.errors import ApiError
from noria.server.protocol.body import read_body
from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.messages import final_assistant_text, template_messages
from noria.server.protocol.sampling import sampling_params
from noria.server.protocol.structured import grammar_of
from noria.server.service import Service
from noria.server.turn import Turn


async def create_chat_completion(service: Service, request: Request) -> Response:
    """Raises ApiError, RequestError or EngineError before anything is sent."""
    fields = await read_body(request, ChatCompletionRequest)
    model = service.served.resolve(fields.model)
    check_common(fields)
    params = _sampling(fields, service)
    messages = template_messages(fields.messages)
    echoed = final_assistant_text(messages) if fields.echo else ""
    answers = Answers(
        chat_tools(fields.tools, fields.tool_choice, fields.parallel_tool_calls),
        tells_reasoning=fields.include_reasoning is not False,
        thinking_token_budget=fields.thinking_token_budget,
    )
    options = chat_options(fields, service.options.answers)
    chat = Chat(messages, options, answers, bool(fields.add_special_tokens))

    head = reply_head(request, "chatcmpl-", model, fields.request_id)
    turn = await begin_chat(service, request, head.id, chat, params, fields)
    finish = "stop" if answers.tools.named is not None else "tool_calls"
    words = ChatWords(service.options.tools.reasoning_fields, finish)
    reply = reply_over(turn, service, fields, head, bool(fields.logprobs))
    prompt_text = await _prompt_text(service, turn) if fields.return_prompt_text else None
    encoder = ChatEncoder(reply, echoed, words, prompt_text)
    return await answer(service, request, fields, turn, encoder)


async def _prompt_text(service: Service, turn: Turn) -> str:
    """The chat as the model got it. Raises ApiError, and ends the turn, when too many long texts wait."""
    try:
        return await service.decode(turn.request.prompts[0])
    except BaseException:
        turn.close()
        raise


def _sampling(fields: ChatCompletionRequest, service: Service) -> SamplingParams:
    if fields.top_logprobs and not fields.logprobs:
        raise ApiError("top_logprobs goes with `logprobs: true` only", param="top_logprobs")
    max_tokens, spelling = fields.max_tokens, "max_tokens"
    if fields.max_completion_tokens is not None:
        max_tokens, spelling = fields.max_completion_tokens, "max_completion_tokens"
    return sampling_params(
        fields,
        service.served,
        max_tokens=max_tokens,
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        max_stop_strings=service.limits.max_stop_strings,
        spellings={"max_tokens": spelling, "logprobs": "top_logprobs"},
        grammar=grammar_of(fields.structured_outputs, fields.response_format, "response_format"),
    )
