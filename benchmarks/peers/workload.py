"""The seeded prompts and lengths. The same seed and counts give every engine the same requests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from benchmarks.peers.traffic import Group, Play, Request

# Common words, most of them one token to most tokenizers.
_COMMON = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they "
    "which one you were her all she there would their we him been has when who will more no if out so said what "
    "up its about into than them can only other new some could time these two may then do first any my now such "
    "like our over man me even most made after also did many before must through back years where much your way"
)
WORDS = _COMMON.split()

PROMPT_WORDS = (96, 8, 1000)  # median, least, most
OUTPUT_TOKENS = (64, 4, 256)
SIGMA = 0.8

PREFILL_WORDS = 511
SHORT_STREAMS, SHORT_WORDS, SHORT_TOKENS = 4, 20, 200
LONG_PROMPTS, LONG_WORDS, LONG_TOKENS = 3, 2500, 8
LONG_AFTER_S = 1.0
SAME_PROMPTS = 24


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked at each point. num_mixed: requests by concurrency."""

    num_mixed: dict[int, int]
    num_prefill: int
    same_tokens: int


# Between a few seconds and about forty for an engine of 30 to 1000 tokens a second.
NORMAL = Sizes(num_mixed={1: 12, 8: 48, 32: 96}, num_prefill=5, same_tokens=32)
QUICK = Sizes(num_mixed={1: 4, 8: 16, 32: 48}, num_prefill=3, same_tokens=16)


def mixed(count: int, concurrency: int, seed: int) -> Play:
    """Prompts and outputs of lognormal lengths, in a closed loop."""
    draw = random.Random(f"mixed {seed}")
    requests = [
        Request(_prompt(draw, _length(draw, *PROMPT_WORDS)), _length(draw, *OUTPUT_TOKENS))
        for _ in range(count)
    ]
    return [Group(tuple(requests), concurrency)]


def prefill(count: int, seed: int) -> Play:
    """One token each after a new prompt of PREFILL_WORDS; the first, not to be counted, warms up."""
    draw = random.Random(f"prefill {seed}")
    return [Group(tuple(Request(_prompt(draw, PREFILL_WORDS), 1) for _ in range(count + 1)), 1)]


def long_among_short(seed: int) -> Play:
    """Group 0: short chats that stream; group 1: long prompts, one after another, from second 1."""
    draw = random.Random(f"long {seed}")
    short = tuple(Request(_prompt(draw, SHORT_WORDS), SHORT_TOKENS) for _ in range(SHORT_STREAMS))
    long = tuple(Request(_prompt(draw, LONG_WORDS), LONG_TOKENS) for _ in range(LONG_PROMPTS))
    return [Group(short, SHORT_STREAMS), Group(long, 1, LONG_AFTER_S)]


def same_answer(max_tokens: int, seed: int) -> tuple[Play, Play]:
    """The same prompts one by one, and all at once."""
    draw = random.Random(f"same {seed}")
    requests = tuple(
        Request(_prompt(draw, _length(draw, *PROMPT_WORDS)), max_tokens) for _ in range(SAME_PROMPTS)
    )
    return [Group(requests, 1)], [Group(requests, len(requests))]


def warm_up() -> Play:
    return [Group((Request("Once upon a time there was", 8),), 1)]


def _length(draw: random.Random, median: int, least: int, most: int) -> int:
    return min(most, max(least, round(draw.lognormvariate(math.log(median), SIGMA))))


def _prompt(draw: random.Random, num_words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(num_words))
