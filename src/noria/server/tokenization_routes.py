"""The routes about the tokenizer."""

from __future__ import annotations

from noria.server.endpoint import endpoint
from noria.server.operations import Operation, Reply
from noria.server.protocol.tokenization import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    TokenizerInfo,
)
from noria.server.service import Service
from noria.server.tokenization import detokenize, tokenize, tokenizer_info

_TAG = "tokenizer"


def tokenization_routes(service: Service) -> list[Operation]:
    operations = [
        Operation(
            _TAG,
            "POST",
            "/tokenize",
            endpoint(service, tokenize),
            "Token ids of a text or a chat",
            TokenizeRequest,
            replies={200: Reply(model=TokenizeResponse)},
        ),
        Operation(
            _TAG,
            "POST",
            "/detokenize",
            endpoint(service, detokenize),
            "Text of token ids",
            DetokenizeRequest,
            replies={200: Reply(model=DetokenizeResponse)},
        ),
    ]
    if service.options.answers.enable_tokenizer_info_endpoint:
        operations.append(
            Operation(
                _TAG,
                "GET",
                "/tokenizer_info",
                endpoint(service, tokenizer_info),
                "Special tokens and chat template",
                replies={200: Reply(model=TokenizerInfo)},
            )
        )
    return operations
