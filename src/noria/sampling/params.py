"""Sampling parameters: what a request asks of the sampler, checked by name and range."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noria.config.errors import RequestError
from noria.sampling.grammar import Grammar
from noria.sampling.rule import Rule

if TYPE_CHECKING:
    import numpy as np

    # (prompt ids, output ids so far, logits [vocab] float32) -> logits [vocab]
    LogitsProcessor = Callable[[Sequence[int], Sequence[int], np.ndarray], np.ndarray]

MAX_N = 16384
MAX_SEED = 2**64
MAX_COUNT = 2**31 - 1  # of tokens, anywhere


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the output tokens of one request. Names and meanings are those of the OpenAI API and its
    usual extensions.

    n: independent outputs to make for the prompt.
    temperature: 0 is greedy (ties go to the lowest token id).
    top_k: 0 or -1 keeps every token. top_p in (0, 1]. min_p in [0, 1].
    presence_penalty, frequency_penalty: over output tokens, in [-2, 2]. repetition_penalty: over prompt and
        output tokens, above 0; 1 is neutral.
    logit_bias: token id -> bias in [-100, 100], added to the logit.
    allowed_token_ids: the only tokens that may be chosen, None: all. An end token ends the output only if it is one
        of them.
    bad_words: texts that the output must not hold, as far as tokens go: the tokenizer's own spelling of each, at
        the start of a text and within it, is never completed. A word spelt in other tokens is not found.
    bad_word_ids: the same in token ids; the clients of the engine fill it in (`tokenize.bad_words`).
    grammar: what the output's text must be. An end-of-sequence token ends it where the grammar may end; with
        ignore_eos or below min_tokens only where nothing else may follow. An output that allowed_token_ids and the
        like leave no token of the grammar's fails.
    thinking_token_budget: most tokens of reasoning before the end marker is forced; None: no bound. Reasoning counts
        from behind reasoning_begin_ids, or from the output's start where there are none (the prompt ends with them).
    reasoning_begin_ids, reasoning_end_ids: its markers; the clients of the engine that know the model fill them in.
    seed: with a seed, outputs repeat; the random number of a position depends on (seed, position) alone.
    stop: strings that end the output; left out of it unless include_stop_str_in_output.
    stop_token_ids: token ids that end the output, besides the model's end-of-sequence tokens.
    min_tokens: no stop of any kind before this many tokens. max_tokens: None means up to the context's end.
    ignore_eos: the model's end-of-sequence tokens do not end the output.
    logprobs, prompt_logprobs: number of most likely alternatives to report a token (0: the token alone); None
        reports nothing. Values are log-softmax of the model's own logits, before penalties and temperature.
    logprob_token_ids: the alternatives to report with logprobs, instead of the most likely ones.
    rule: a decoding rule of an installed package, asked at every step (docs/extending.md). What it allows counts before
        everything that chooses, and what it makes of the logits before everything that changes them.
    skip_special_tokens: leave special tokens out of the text.
    logits_processors: Python callables (prompt_ids, output_ids, logits) -> logits, in order, after penalties
        and bias; offline API only. One that raises fails its own request.

    Raises RequestError naming the parameter and its range.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    grammar: Grammar | None = None
    thinking_token_budget: int | None = None
    reasoning_begin_ids: tuple[int, ...] = ()
    reasoning_end_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 16
    logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()
    prompt_logprobs: int | None = None
    rule: Rule | None = None
    skip_special_tokens: bool = True
    logits_processors: tuple[LogitsProcessor, ...] = ()

    def __post_init__(self) -> None:
        _set = object.__setattr__
        for name in ("stop", "bad_words"):
            if isinstance(getattr(self, name), str):
                _set(self, name, (getattr(self, name),))
        for name, (kind, words) in _COLLECTIONS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                _set(self, name, _collected(value, kind, words, name))
        _check_numbers(self)
        _check_flags(self)
        _check_lists(self)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens must not exceed max_tokens ({self.max_tokens}), got {self.min_tokens}",
                "min_tokens",
            )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def runs_to_limit(self) -> bool:
        """Whether the model cannot end the output by itself."""
        return self.ignore_eos

    @property
    def needs_every_position(self) -> bool:
        """Whether its prompt must be computed from its first token on: what the prefix cache has are no logits."""
        return self.prompt_logprobs is not None

    @property
    def is_constrained(self) -> bool:
        """Whether each step has to be told which tokens may be chosen."""
        return self.grammar is not None or self.rule is not None


# name -> (kind, lowest, highest, lowest is allowed); highest None: no bound
_RANGES: dict[str, tuple[type, float, float | None, bool]] = {
    "n": (int, 1, MAX_N, True),
    "temperature": (float, 0.0, None, True),
    "top_k": (int, -1, MAX_COUNT, True),
    "top_p": (float, 0.0, 1.0, False),
    "min_p": (float, 0.0, 1.0, True),
    "repetition_penalty": (float, 0.0, None, False),
    "presence_penalty": (float, -2.0, 2.0, True),
    "frequency_penalty": (float, -2.0, 2.0, True),
    "seed": (int, -(2**63), MAX_SEED - 1, True),
    "thinking_token_budget": (int, 0, MAX_COUNT, True),
    "min_tokens": (int, 0, MAX_COUNT, True),
    "max_tokens": (int, 0, MAX_COUNT, True),
    "logprobs": (int, 0, MAX_COUNT, True),
    "prompt_logprobs": (int, 0, MAX_COUNT, True),
}
_OPTIONAL = (
    "seed", "max_tokens", "logprobs", "prompt_logprobs", "allowed_token_ids", "thinking_token_budget",
)  # fmt: skip


def _tuple_of_tuples(values: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(value) for value in values)


# name -> (what it is kept as, what it must be)
_COLLECTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "stop": (tuple, "a string or a list of strings"),
    "stop_token_ids": (tuple, "a list of token ids"),
    "logprob_token_ids": (tuple, "a list of token ids"),
    "allowed_token_ids": (tuple, "a list of token ids"),
    "reasoning_begin_ids": (tuple, "a list of token ids"),
    "reasoning_end_ids": (tuple, "a list of token ids"),
    "bad_words": (tuple, "a list of strings"),
    "bad_word_ids": (_tuple_of_tuples, "a list of lists of token ids"),
    "logits_processors": (tuple, "a list of callables"),
    "logit_bias": (dict, "a map from token id to bias"),
}


def _collected(value: object, kind: Callable[..., Any], words: str, name: str) -> Any:
    if value is None:
        return kind(())
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise RequestError(f"{name} must be {words}, got {_show(value)}", name) from None


def _check_numbers(params: SamplingParams) -> None:
    for name, (kind, low, high, closed) in _RANGES.items():
        value = getattr(params, name)
        if value is None and name in _OPTIONAL:
            continue
        if not _is_number(value, kind):
            raise RequestError(f"{name} must be a finite {_KIND_WORDS[kind]}, got {_show(value)}", name)
        if value < low or (value == low and not closed):
            raise RequestError(f"{name} must be {_range_words(low, high, closed)}, got {_show(value)}", name)
        if high is not None and value > high:
            raise RequestError(f"{name} must be {_range_words(low, high, closed)}, got {_show(value)}", name)


def _is_number(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int)
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the floats
        return False


def _show(value: object) -> str:
    """repr in at most a line; Python makes none of whole numbers with thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} too big to print"
    return text if len(text) <= 100 else f"{text[:97]}..."


_KIND_WORDS = {int: "whole number", float: "number"}


def _range_words(low: float, high: float | None, closed: bool) -> str:
    lower = f"{'at least' if closed else 'above'} {_plain(low)}"
    return lower if high is None else f"{lower} and at most {_plain(high)}"


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _check_flags(params: SamplingParams) -> None:
    for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"):
        value = getattr(params, name)
        if not isinstance(value, bool):
            raise RequestError(f"{name} must be true or false, got {_show(value)}", name)


def _check_lists(params: SamplingParams) -> None:
    for name in ("stop", "bad_words"):
        for text in getattr(params, name):
            if not isinstance(text, str) or not text:
                raise RequestError(f"{name} must hold non-empty strings, got {_show(text)}", name)
    if params.grammar is not None and not isinstance(params.grammar, Grammar):
        raise RequestError(f"grammar must be a Grammar, got {_show(params.grammar)}", "grammar")
    if params.allowed_token_ids is not None and not params.allowed_token_ids:
        raise RequestError("allowed_token_ids must hold at least one token id", "allowed_token_ids")
    _check_ids(params.stop_token_ids, "stop_token_ids")
    _check_ids(params.allowed_token_ids or (), "allowed_token_ids")
    _check_ids(params.logprob_token_ids, "logprob_token_ids")
    _check_ids(params.reasoning_begin_ids, "reasoning_begin_ids")
    _check_ids(params.reasoning_end_ids, "reasoning_end_ids")
    if params.thinking_token_budget is not None and not params.reasoning_end_ids:
        raise RequestError(
            "thinking_token_budget needs reasoning_end_ids, the tokens that end the reasoning",
            "thinking_token_budget",
        )
    if params.logprob_token_ids and params.logprobs is None:
        raise RequestError("logprob_token_ids go with logprobs, which are not asked for", "logprob_token_ids")
    for word in params.bad_word_ids:
        _check_ids(word, "bad_word_ids")
        if not word:
            raise RequestError("bad_word_ids must hold lists of at least one token id", "bad_word_ids")
    for token_id, bias in params.logit_bias.items():
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise RequestError(
                f"logit_bias must map token ids (0 or above), got {_show(token_id)}", "logit_bias"
            )
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not -100 <= bias <= 100:
            raise RequestError(
                f"logit_bias must be at least -100 and at most 100, got {_show(bias)}", "logit_bias"
            )
    if params.rule is not None and not isinstance(params.rule, Rule):
        raise RequestError(f"rule must be a Rule, got {_show(params.rule)}", "rule")
    for processor in params.logits_processors:
        if not callable(processor):
            raise RequestError(
                f"logits_processors must hold callables, got {_show(processor)}", "logits_processors"
            )


def _check_ids(token_ids: Sequence[object], name: str) -> None:
    for token_id in token_ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise RequestError(f"{name} must hold token ids (0 or above), got {_show(token_id)}", name)
