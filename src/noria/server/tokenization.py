"""POST /tokenize and /detokenize, and GET /tokenizer_info."""

from __future__ import annotations

from dataclasses import replace

import orjson
from starlette.requests import Request
from starlette.responses import Response

from noria.sampling.validate import check_token_ids
from noria.server.chat_options import chat_options
from noria.server.errors import ApiError
from noria.server.protocol.body import read_body
from noria.server.protocol.messages import template_messages
from noria.server.protocol.prompts import checked_ids
from noria.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest
from noria.server.protocol.unsupported import refuse_or_pass_over
from noria.server.service import Service


async def tokenize(service: Service, request: Request) -> Response:
    """The ids that a text completion or a chat with these fields would be made from. Raises ApiError, RequestError."""
    fields = await read_body(request, TokenizeRequest)
    service.served.resolve(fields.model)
    refuse_or_pass_over(fields.model_extra or {}, (), {})
    if (fields.prompt is None) == (fields.messages is None):
        raise ApiError("tokenize takes one of `prompt` and `messages`", param="prompt")
    tokens = await (_of_prompt(service, fields) if fields.messages is None else _of_chat(service, fields))
    token_text = service.served.tokenizer.token_text
    return _json(
        {
            "count": len(tokens),
            "max_model_len": service.served.max_model_len,
            "tokens": tokens,
            "token_strs": [token_text(token_id) for token_id in tokens] if fields.return_token_strs else None,
        }
    )


async def detokenize(service: Service, request: Request) -> Response:
    """The text of ids, special tokens written out, so that tokenizing it gives them again. Raises as tokenize does."""
    fields = await read_body(request, DetokenizeRequest)
    service.served.resolve(fields.model)
    refuse_or_pass_over(fields.model_extra or {}, (), {})
    token_ids = checked_ids(fields.tokens, "tokens")
    check_token_ids(token_ids, service.served.vocab_size, "tokens")
    return _json({"prompt": await service.decode(token_ids)})


async def tokenizer_info(service: Service, request: Request) -> Response:
    tokenizer = service.served.tokenizer
    return _json(
        {
            **tokenizer.special_tokens,
            "bos_token": tokenizer.bos_token,
            "eos_token": tokenizer.eos_token,
            "chat_template": tokenizer.chat_template,
            "add_bos_token": tokenizer.adds_bos_token,
            "model_max_length": service.served.max_model_len,
            "vocab_size": tokenizer.vocab_size,
        }
    )


async def _of_prompt(service: Service, fields: TokenizeRequest) -> list[int]:
    assert fields.prompt is not None
    [tokens] = await service.encode([fields.prompt], fields.add_special_tokens is not False)
    return tokens


async def _of_chat(service: Service, fields: TokenizeRequest) -> list[int]:
    messages = template_messages(fields.messages)
    options = replace(chat_options(fields, service.options.answers), tools=fields.tools)
    return await service.encode_chat(messages, options, bool(fields.add_special_tokens))


def _json(content: object) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
