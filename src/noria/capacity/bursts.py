"""Steps larger than an engine's own settings make: what a search is to try has to have been measured.

Requests that come at once, in an engine whose bounds are wide, are read in one step and then decode together: few long
prompts make a step of many tokens, many short ones a step of many requests.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from noria.config.asked import EngineOptions
from noria.config.engine import EngineConfig
from noria.core.clock import Clock
from noria.core.outputs import Delta
from noria.engine.client import EngineClient
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams

MOST_SEQS, MOST_TOKENS = 512, 16_384  # of a step that noria tune tries
_LONGEST_PROMPT, _SHORT_PROMPT = 2048, 8  # tokens
_ANSWER = 4  # tokens: the first comes with the prompt, the others are steps of single tokens
_WAIT_S = 600.0  # for an answer of a few tokens: more is no slowness


@dataclass(frozen=True, slots=True)
class Burst:
    """So many requests at once, with prompts of so many tokens each."""

    num_seqs: int
    prompt_tokens: int

    @property
    def num_tokens(self) -> int:
        """All that it computes."""
        return self.num_seqs * (self.prompt_tokens + _ANSWER - 1)


def bursts(config: EngineConfig, seconds: float) -> list[Burst]:
    """Beyond what the settings' own steps hold, up to what noria tune tries, the smallest first. seconds: in which they
    shall be over; where steps were timed at start, what clearly takes longer is left out."""
    scheduler = config.scheduler
    longest = min(_LONGEST_PROMPT, scheduler.max_model_len // 2, scheduler.max_model_len - _ANSWER)
    if longest < 1:
        return []
    sizes = _doubled(scheduler.full_step_tokens, MOST_TOKENS)
    found = [_of_tokens(size, longest) for size in sizes]
    short = min(_SHORT_PROMPT, longest)
    found += [Burst(size, short) for size in _doubled(scheduler.max_num_seqs, MOST_SEQS)]
    token_s = scheduler.step_cost.token_s if scheduler.step_cost is not None else 0.0
    # Each size is twice the one before, so all of them take twice the largest.
    fitting = [one for one in dict.fromkeys(found) if 2 * one.num_tokens * token_s <= seconds]
    return sorted(fitting, key=lambda one: one.num_tokens)


def _of_tokens(size: int, longest: int) -> Burst:
    """A step of so many tokens; of fewer, where prompts are so short that it would take too many requests."""
    num_seqs = min(MOST_SEQS, ceil(size / longest))
    return Burst(num_seqs, min(longest, size // num_seqs))


def _doubled(size: int, most: int) -> Iterator[int]:
    while size < most:
        size = min(2 * size, most)
        yield size


def wide_options(asked: EngineOptions, config: EngineConfig, planned: Sequence[Burst]) -> EngineOptions:
    """The same engine with bounds that let each burst into one step, in the memory that takes. Limits on latencies are
    left out: they would bound a step, too. config: as settled without them."""
    most_tokens = max(one.num_seqs * one.prompt_tokens for one in planned)
    most_seqs = max(config.scheduler.max_num_seqs, *(one.num_seqs for one in planned))
    length = max(one.prompt_tokens for one in planned) + _ANSWER
    size = config.cache.block_size
    num_blocks = max(one.num_seqs * ceil((one.prompt_tokens + _ANSWER) / size) for one in planned)
    scheduler = replace(
        asked.scheduler,
        max_num_batched_tokens=max(most_tokens, most_seqs, length),
        max_num_seqs=most_seqs,
        itl_slo_ms=None,
        ttft_slo_ms=None,
    )
    memory = replace(
        asked.memory, max_model_len=length, num_gpu_blocks_override=num_blocks, kv_cache_memory=None
    )
    return replace(asked, scheduler=scheduler, memory=memory)


def burst(
    client: EngineClient,
    vocab_size: int,
    planned: Sequence[Burst],
    seconds: float,
    clock: Clock,
    progress: Callable[[float], None] = lambda done: None,
) -> None:
    """Each in turn, again and again, until the time is over: none is begun that would take longer, by what the one
    before it took. Raises what the engine raises."""
    draw = random.Random(0)
    start_s = clock.now()
    fitting, token_s = list(planned), 0.0
    while fitting:
        for place, one in enumerate(fitting):
            begun_s = clock.now()
            if begun_s - start_s + token_s * one.num_tokens > seconds:
                fitting = fitting[:place]
                break
            _send(client, one, vocab_size, draw)
            token_s = (clock.now() - begun_s) / one.num_tokens
            progress(min(1.0, (clock.now() - start_s) / seconds))


def _send(client: EngineClient, one: Burst, vocab_size: int, draw: random.Random) -> None:
    """And wait for all answers."""
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def sink(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if delta.finish is not None:
                done.put(delta.request_id)

    client.submit(list(_requests(one, vocab_size, draw)), sink).result()
    for _ in range(one.num_seqs):
        done.get(timeout=_WAIT_S)


def _requests(one: Burst, vocab_size: int, draw: random.Random) -> Iterable[GenerateRequest]:
    params = SamplingParams(temperature=0.0, max_tokens=_ANSWER, ignore_eos=True)
    for _ in range(one.num_seqs):
        prompt = tuple(draw.randrange(vocab_size) for _ in range(one.prompt_tokens))
        yield GenerateRequest(f"burst-{draw.getrandbits(64):x}", prompt, params, 0)
