"""A load that shows an engine's steps in all their kinds, so that a model can learn what they take."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from noria.config.engine import EngineConfig
from noria.core.clock import Clock
from noria.core.outputs import Delta
from noria.engine.client import EngineClient
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams

_LONGEST_PROMPT = 2048  # tokens: a longer one takes a stage for itself
_NUM_STEMS = 6
_OUTPUTS = (8, 64)  # tokens
_MEDIAN_PROMPT = 64  # tokens, of those that share nothing
_LONGEST_TAIL = 32  # tokens, after what a prompt shares with others
_SPREAD = 1.2  # of the logarithm of their lengths
_WAIT_S = 600.0  # for an answer of a few tokens: more is no slowness


@dataclass(frozen=True, slots=True)
class Level:
    """So many requests inside at once, for that long. is_deep: with long contexts, that they mostly share."""

    num_seqs: int
    seconds: float
    is_deep: bool = False


def levels(config: EngineConfig, seconds: float) -> list[Level]:
    """1, 2, 4, ... up to what runs at once, and in between: `seconds` in all, more of them where more runs.

    Each with short contexts and with long ones: what a context costs is told from what a sequence costs only where
    equally many have both.
    """
    sizes = sorted(
        {
            1,
            *(size for size in _sizes() if size < config.scheduler.max_num_seqs),
            config.scheduler.max_num_seqs,
        }
    )
    weights = [1 + size**0.5 for size in sizes]
    return [
        Level(size, seconds * weight / sum(weights) / 2, is_deep)
        for size, weight in zip(sizes, weights, strict=True)
        for is_deep in (False, True)
    ]


def _sizes() -> Iterator[int]:
    size = 1
    while size < 1 << 12:
        yield size
        yield size * 3 // 2
        size *= 2


def probe(
    client: EngineClient,
    config: EngineConfig,
    stages: Sequence[Level],
    clock: Clock,
    progress: Callable[[float], None] = lambda done: None,
    seed: int = 0,
) -> None:
    """Run every stage after the other. progress: told of the share that is done. Raises what the engine raises."""
    prompts = _Prompts(config, random.Random(seed))
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def sink(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if delta.finish is not None:
                done.put(delta.request_id)

    def submit(is_deep: bool) -> None:
        client.submit([prompts.request(is_deep)], sink).result()

    start_s = clock.now()
    total_s = sum(stage.seconds for stage in stages)
    end_s = start_s
    num_open = 0
    for stage in stages:
        end_s += stage.seconds
        while clock.now() < end_s:
            if num_open < stage.num_seqs:
                submit(stage.is_deep)
                num_open += 1
                continue
            done.get(timeout=_WAIT_S)
            num_open -= 1
            progress(min(1.0, (clock.now() - start_s) / total_s))
    client.cancel([f"probe-{number}" for number in range(prompts.num_made)])
    while num_open:
        done.get(timeout=_WAIT_S)
        num_open -= 1


class _Prompts:
    """Lengths from a few tokens to half of what the model takes; deep ones begin as others did."""

    def __init__(self, config: EngineConfig, draw: random.Random) -> None:
        self._draw = draw
        self._vocab_size = config.model.vocab_size
        self._longest = max(1, min(_LONGEST_PROMPT, config.scheduler.max_model_len // 2))
        self._most_output = max(1, min(_OUTPUTS[1], config.scheduler.max_model_len - self._longest - 1))
        self._stems = [self._ids(self._longest) for _ in range(_NUM_STEMS)]
        self.num_made = 0

    def request(self, is_deep: bool) -> GenerateRequest:
        self.num_made += 1
        params = SamplingParams(
            temperature=0.0,
            max_tokens=self._draw.randint(min(_OUTPUTS[0], self._most_output), self._most_output),
            ignore_eos=True,
        )
        return GenerateRequest(f"probe-{self.num_made - 1}", tuple(self._prompt(is_deep)), params, 0)

    def _prompt(self, is_deep: bool) -> list[int]:
        length = int(self._draw.lognormvariate(0, _SPREAD) * _MEDIAN_PROMPT)
        length = min(max(1, length), self._longest)
        if not is_deep:
            return self._ids(length)
        stem = self._draw.choice(self._stems)[: self._draw.randint(self._longest // 4, self._longest)]
        return [*stem, *self._ids(min(length, _LONGEST_TAIL))][: self._longest]

    def _ids(self, count: int) -> list[int]:
        return [self._draw.randrange(self._vocab_size) for _ in range(count)]
