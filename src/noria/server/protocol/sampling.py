"""From request fields to SamplingParams: what is stated, then the model's defaults, then neutral values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from noria.config.errors import RequestError
from noria.sampling.defaults import params_over_defaults
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.sampling.rule import FIELD, Rule
from noria.sampling.validate import check_against_vocabulary
from noria.server.errors import ApiError, ContextOverflow
from noria.server.protocol.fields import SharedFields
from noria.server.served import ServedModel
from noria.tokenize.bad_words import with_bad_word_ids

_TAKEN_OVER = (
    "n",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "allowed_token_ids",
    "bad_words",
    "seed",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "prompt_logprobs",
    "logprob_token_ids",
)
_MAX_BAD_WORDS = 128


def sampling_params(
    fields: SharedFields,
    served: ServedModel,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    max_stop_strings: int,
    spellings: Mapping[str, str],
    grammar: Grammar | None,
) -> SamplingParams:
    """What `fields` ask of the sampler.

    max_tokens: None means up to the context's end.
    spellings: by name of a sampling parameter, the request field that the user knows it by.
    grammar: what the answer must be.
    Raises ApiError, or RequestError, naming the field and its range.
    """
    declared = type(fields).model_fields
    stated = {name: getattr(fields, name) for name in _TAKEN_OVER if name in declared}
    values: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
    values.update(
        max_tokens=max_tokens, logprobs=logprobs, logit_bias=_logit_bias(fields.logit_bias), grammar=grammar
    )
    try:
        values.update(rule=_rule(fields.sampler))
        _check_length("stop", values, max_stop_strings)
        _check_length("bad_words", values, _MAX_BAD_WORDS)
        params = params_over_defaults(values, served.generation_defaults)
        params = with_bad_word_ids(params, served.tokenizer, served.vocab_size)
        check_against_vocabulary(params, served.vocab_size, served.max_logprobs)
    except RequestError as error:
        raise _respelt(error, spellings) from None
    return params


def _rule(stated: Mapping[str, Any] | None) -> Rule | None:
    if not stated:
        return None
    unknown = sorted(set(stated) - {"name", "arguments"})
    if unknown or "name" not in stated:
        found = ", ".join(map(repr, stated))[:100]
        raise RequestError(f"{FIELD} must have a name and may have arguments, got {found}", FIELD)
    return Rule(stated["name"], stated.get("arguments") or {})


def _check_length(name: str, values: Mapping[str, Any], most: int) -> None:
    stated = values.get(name)
    if isinstance(stated, list) and len(stated) > most:
        raise RequestError(f"{name} must hold at most {most} strings, got {len(stated)}", name)


def _logit_bias(stated: Mapping[str, Any] | None) -> dict[int, Any]:
    biases: dict[int, Any] = {}
    for key, bias in (stated or {}).items():
        if not (key.isascii() and key.isdecimal() and len(key) < 20):
            raise ApiError(
                f"logit_bias must map token ids (0 or above), got {key[:50]!r}", param="logit_bias"
            )
        biases[int(key)] = bias
    return biases


def _respelt(error: RequestError, spellings: Mapping[str, str]) -> ApiError:
    message, param = str(error), error.param
    if param is not None and param in spellings:
        message, param = message.replace(param, spellings[param]), spellings[param]
    return ApiError(message, param=param)


def fit_to_context(
    params: SamplingParams, num_prompt: int, max_model_len: int, param: str, default: int | None = None
) -> SamplingParams:
    """The params with a stated end: max_tokens, or what the context leaves after the prompt.

    param: the field to blame. default: most tokens of an output that no max_tokens is stated for.
    Raises ContextOverflow when prompt and output do not fit.
    """
    room = max_model_len - num_prompt
    wanted = 1 if params.max_tokens is None else params.max_tokens
    if wanted > room:
        raise ContextOverflow(num_prompt, wanted, max_model_len, param)
    if params.max_tokens is not None:
        return params
    return replace(params, max_tokens=room if default is None else min(room, default))
