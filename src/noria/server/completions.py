"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from noria.sampling.params import SamplingParams
from noria.sampling.validate import check_token_ids
from noria.server.answer import answer
from noria.server.common_fields import check_common, reply_head, reply_over
from noria.server.encoders.completions import CompletionEncoder
from noria.server.encoders.echo import EchoedPrompt
from noria.server.errors import ApiError
from noria.server.protocol.body import read_body
from noria.server.protocol.completions import CompletionRequest
from noria.server.protocol.prompts import Prompt, Truncation, empty_prompt, split_prompts
from noria.server.protocol.sampling import fit_to_context, sampling_params
from noria.server.protocol.structured import grammar_of
from noria.server.service import Service
from noria.server.terms import terms_of
from noria.server.turn import TurnRequest

_DEFAULT_MAX_TOKENS = 16


async def create_completion(service: Service, request: Request) -> Response:
    """Raises ApiError, RequestError or EngineError before anything is sent."""
    fields = await read_body(request, CompletionRequest)
    model = service.served.resolve(fields.model)
    check_common(fields)
    params = _sampling(fields, service)
    prompts = split_prompts(fields.prompt, service.limits.max_prompts)
    max_model_len = service.served.max_model_len
    truncation = Truncation.of(fields.truncate_prompt_tokens, fields.truncation_side)
    num_output = _DEFAULT_MAX_TOKENS if params.max_tokens is None else params.max_tokens
    whole = await _encode(prompts, fields, service)
    token_ids = tuple(truncation.apply(ids, max_model_len - num_output) for ids in whole)
    fitted = tuple(
        fit_to_context(params, len(ids), max_model_len, "prompt", _DEFAULT_MAX_TOKENS) for ids in token_ids
    )
    texts = [
        prompt if ids == kept else kept for prompt, ids, kept in zip(prompts, whole, token_ids, strict=True)
    ]
    echoes = _echoes(texts, token_ids, params, service) if fields.echo else []

    head = reply_head(request, "cmpl-", model, fields.request_id)
    request_id = service.engine_request_id(head.id)
    terms = terms_of(request, fields, service.options.request_timeout)
    turn = await service.begin(TurnRequest(request_id, token_ids, fitted, terms))
    encoder = CompletionEncoder(reply_over(turn, service, fields, head, fields.logprobs is not None), echoes)
    return await answer(service, request, fields, turn, encoder)


def _sampling(fields: CompletionRequest, service: Service) -> SamplingParams:
    n = 1 if fields.n is None else fields.n
    if fields.best_of is not None and fields.best_of != n:
        raise ApiError(f"best_of must equal n ({n}): this server returns all it generates", param="best_of")
    params = sampling_params(
        fields,
        service.served,
        max_tokens=fields.max_tokens,
        logprobs=fields.logprobs,
        max_stop_strings=service.limits.max_stop_strings,
        spellings={},
        grammar=grammar_of(fields.structured_outputs, fields.response_format, "response_format"),
    )
    if fields.echo and fields.logprobs is not None and fields.prompt_logprobs is None:
        # The prompt comes back, and with it what the model thought of it.
        return replace(params, prompt_logprobs=fields.logprobs)
    return params


async def _encode(
    prompts: Sequence[Prompt], fields: CompletionRequest, service: Service
) -> tuple[tuple[int, ...], ...]:
    """Token ids of each prompt. Raises ApiError for a text without tokens, RequestError for ids that the model
    does not have.
    """
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    adds_special_tokens = fields.add_special_tokens is not False
    encoded = iter(await service.encode(texts, adds_special_tokens))
    token_ids = tuple(tuple(next(encoded)) if isinstance(prompt, str) else prompt for prompt in prompts)
    for ids in token_ids:
        if not ids:
            raise empty_prompt()
        check_token_ids(ids, service.served.vocab_size, "prompt")
    return token_ids


def _echoes(
    prompts: Sequence[Prompt],
    token_ids: Sequence[Sequence[int]],
    params: SamplingParams,
    service: Service,
) -> list[EchoedPrompt]:
    return [
        EchoedPrompt(
            service.served.tokenizer,
            ids,
            prompt if isinstance(prompt, str) else None,
            params.skip_special_tokens,
        )
        for prompt, ids in zip(prompts, token_ids, strict=True)
    ]
