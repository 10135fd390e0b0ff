"""A load of noria bench as a simulated engine's arrivals, and what became of them as outcomes of noria bench."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from noria.bench.outcome import Outcome as BenchOutcome
from noria.bench.outcome import Status
from noria.bench.pieces import Piece, Planned
from noria.bench.play import Play
from noria.bench.target import Sample
from noria.capacity.arrivals import Arrival
from noria.capacity.front import NO_FRONT, Front
from noria.capacity.replica import Outcome
from noria.config.errors import ConfigError
from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord, StepRecord

_CACHED_PIECES = 4096
_MOST_TOKEN = 2**31

_ENDS = {
    FinishReason.STOP: Status.OK,
    FinishReason.LENGTH: Status.OK,
    FinishReason.TIMEOUT: Status.TIMEOUT,
}


class Driver:
    """Says what arrives first, and what follows when something has ended, as the load generator would send it."""

    def __init__(self, play: Play, seed: int, front: Front = NO_FRONT) -> None:
        """front: what lies between the engine and the client, whose instants are the play's.

        Raises ConfigError for a load whose lengths only a server knows, and for an open loop with a bound."""
        if any(request.num_prompt is None for request in play.requests):
            raise ConfigError(
                "prompts that are texts have a length only for a tokenizer: simulate a trace of lengths"
            )
        if not play.is_closed and play.max_concurrency is not None:
            raise ConfigError(
                "max_concurrency with --rate bounds the client, which is not simulated: leave out one"
            )
        self._play = play
        self._seed = seed
        self._front = front
        self._waiting = deque(play.due)
        self._draws = lru_cache(maxsize=_CACHED_PIECES)(self._draw)

    def first(self) -> list[Arrival]:
        num_first = self._play.max_concurrency if self._play.is_closed else len(self._waiting)
        return [
            self._arrival(*self._waiting.popleft()) for _ in range(min(num_first or 0, len(self._waiting)))
        ]

    def follow_up(self, outcome: Outcome) -> Iterable[Arrival]:
        index = int(outcome.arrival.request_id)
        at_s = outcome.finished_s
        follower = self._play.followers.get(index)
        if follower is not None and outcome.refusal is None:
            at_s += self._play.requests[follower].pause_s
            return self._in_time(at_s, follower)
        if self._play.is_closed and self._waiting:
            return self._in_time(at_s, self._waiting.popleft()[1])
        return ()

    def _in_time(self, at_s: float, index: int) -> Iterable[Arrival]:
        """at_s: when the client sends it; nothing is sent after the load's end."""
        if self._play.duration_s is not None and at_s >= self._play.duration_s:
            return ()
        return (self._arrival(at_s, index),)

    def _arrival(self, at_s: float, index: int) -> Arrival:
        planned = self._play.requests[index]
        prompt = self._tokens(planned.pieces)
        answer = self._draws(f"answer to {index}", planned.num_output)
        tokens = tuple(np.concatenate([prompt, answer]).tolist())
        at_s += self._front.seconds(len(prompt))
        return Arrival(str(index), at_s, tokens, len(prompt), planned.num_output)

    def _tokens(self, pieces: Sequence[Piece]) -> np.ndarray:
        return np.concatenate([self._draws(piece.name, piece.num_tokens) for piece in pieces])

    def _draw(self, name: str, count: int) -> np.ndarray:
        digest = hashlib.blake2b(f"{self._seed} {name}".encode(), digest_size=8).digest()
        random = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
        return random.integers(1, _MOST_TOKEN, count)


def bench_outcomes(
    outcomes: Sequence[Outcome], requests: Sequence[Planned], front: Front = NO_FRONT
) -> list[BenchOutcome]:
    """As the client sees them. requests: the load's, by index. front: as the driver's, all of it before the engine."""
    return [_bench_outcome(one, requests[int(one.arrival.request_id)], front) for one in outcomes]


def _bench_outcome(one: Outcome, planned: Planned, front: Front) -> BenchOutcome:
    arrival, record = one.arrival, one.record
    sent_s = arrival.at_s - front.seconds(arrival.num_prompt)
    status = (
        Status.REJECTED
        if one.refusal is not None
        else _ENDS.get(one.finish or FinishReason.ERROR, Status.ERROR)
    )
    return BenchOutcome(
        index=planned.index,
        arrival_s=sent_s,
        sent_s=sent_s,
        chunk_s=tuple(one.token_times_s),
        chunk_tokens=(1,) * len(one.token_times_s),
        end_s=one.finished_s,
        status=status,
        num_prompt=arrival.num_prompt,
        num_output=len(one.token_times_s),
        num_planned=arrival.num_prompt,
        num_asked=planned.num_output,
        num_cached=one.num_cached,
        queue_wait_s=_queue_wait_s(record),
        num_preemptions=record.num_preemptions if record is not None else None,
        error=one.refusal or "",
        session=planned.session,
        turn=planned.turn,
    )


def _queue_wait_s(record: RequestRecord | None) -> float | None:
    if record is None or record.first_scheduled_s is None:
        return None
    return record.first_scheduled_s - record.accepted_s


def samples(steps: Sequence[StepRecord]) -> list[Sample]:
    """The state of one engine after each of its steps, counters summed up."""
    found: list[Sample] = []
    preemptions = queries = hits = computed = recomputed = 0
    for step in steps:
        preemptions += step.num_preemptions
        queries += step.prefix_queries
        hits += step.prefix_hits
        computed += sum(work.num_new for work in step.work)
        recomputed += step.num_recomputed_tokens
        found.append(
            Sample(
                time_s=step.collected_s,
                kv_util=step.num_blocks_used / max(1, step.num_blocks),
                num_running=step.num_running,
                num_waiting=step.num_waiting,
                kv_cached=step.num_blocks_cached / max(1, step.num_blocks),
                preemptions=preemptions,
                prefix_queries=queries,
                prefix_hits=hits,
                computed_tokens=computed,
                recomputed_tokens=recomputed,
            )
        )
    return found
