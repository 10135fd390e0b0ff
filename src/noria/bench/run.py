"""One run: the workload is made, sent and watched. What comes of it is plain data."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noria.bench.certificate import Certificate, Certifier, Counted, Verdict, count_words
from noria.bench.generator import Generator
from noria.bench.outcome import Outcome, Status
from noria.bench.pieces import Piece, Planned
from noria.bench.play import Play, make_play, num_requests
from noria.bench.slo import Decided, Slo, decided, parse_slo
from noria.bench.target import Answer, Sample, Target, TargetFacts
from noria.bench.workload import make_workload
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import RequestError

Look = Callable[[int, Mapping[str, Counted]], Verdict]

_SAMPLE_EVERY_S = 0.5
_RECENT = 500  # values that the live figures are of
_WARM_UP = Planned(-1, (Piece("warm-up", 32),), 2)


@dataclass(frozen=True, slots=True)
class Asked:
    """limit_s: after which a request has failed."""

    workload: WorkloadOptions
    load: LoadOptions
    limit_s: float = 600.0


@dataclass(frozen=True, slots=True)
class News:
    """How far a run is. Rates are a second; times are milliseconds, of the latest answers, None before there are any.
    num_planned: None where nobody knows how many will be sent. certificate: the latest, in words."""

    elapsed_s: float
    num_sent: int
    num_planned: int | None
    duration_s: float | None
    num_open: int
    num_ok: int
    num_bad: int
    request_rate: float
    token_rate: float
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    itl_p50_ms: float | None
    lag_p99_ms: float | None
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Instants are seconds since the load began, which was at `started`, seconds since 1970.

    source: measured, or simulated.
    """

    facts: TargetFacts
    workload: dict[str, Any]
    requests: tuple[Planned, ...]
    outcomes: tuple[Outcome, ...]
    samples: tuple[Sample, ...]
    steps: tuple[dict[str, Any], ...]
    certificate: Certificate | None
    started: float
    rate: float | None
    is_closed: bool
    max_concurrency: int | None
    is_interrupted: bool
    source: str = "measured"


class Stop:
    """Ends a run early, from a signal handler. It may come before there is anything to stop."""

    def __init__(self) -> None:
        self.is_asked = False
        self.act: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self.is_asked = True
        self.act()


async def run(target: Target, asked: Asked, tell: Callable[[News], None], stop: Stop) -> RunResult:
    """Raises ConfigError, and RequestError where the target does not answer at all."""
    await warm_up(target, asked.limit_s)
    load, facts = asked.load, target.facts
    seed = asked.workload.bench_seed
    count = num_requests(load, asked.workload.trace is not None)
    workload = await asyncio.to_thread(
        make_workload, asked.workload, count, facts.max_model_len, target.count_tokens
    )
    play = make_play(workload, load, seed)
    slo = parse_slo(load.slo)
    watch = _Watch(play, slo, load, tell)
    generator = Generator(target, play, asked.limit_s, watch.look)
    stop.act = generator.stop
    if stop.is_asked:
        generator.stop()
    samples: list[Sample] = []
    sampling = asyncio.ensure_future(_sample(target, samples))
    started = time.time()
    try:
        outcomes = await generator.run()
    finally:
        sampling.cancel()
    watch.finish(outcomes)
    return RunResult(
        facts=facts,
        workload=workload.about(),
        requests=play.requests[: generator.num_sent] if play.is_closed else play.requests,
        outcomes=tuple(outcomes),
        samples=tuple(replace(sample, time_s=sample.time_s - generator.origin_s) for sample in samples),
        steps=tuple(target.steps()),
        certificate=watch.certificate,
        started=started,
        rate=play.rate,
        is_closed=play.is_closed,
        max_concurrency=play.max_concurrency,
        is_interrupted=stop.is_asked,
    )


async def warm_up(target: Target, limit_s: float) -> None:
    """One request that does not count. If it fails, so would all others: the reason is said before they are made."""
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answered(answer: Answer) -> None:
        if not done.done():
            done.set_result(answer)

    flight = target.send(_WARM_UP, answered)
    try:
        answer = await asyncio.wait_for(asyncio.shield(done), limit_s)
    except asyncio.TimeoutError:
        flight.end(Status.TIMEOUT)
        raise RequestError(f"a first request was not answered within {limit_s:g} s") from None
    if answer.status is not Status.OK:
        raise RequestError(f"a first request failed: {answer.error}")


async def _sample(target: Target, samples: list[Sample]) -> None:
    while True:
        sample = await target.sample()
        if sample is None and not samples:
            return
        if sample is not None:
            samples.append(sample)
        await asyncio.sleep(_SAMPLE_EVERY_S)


class _Watch:
    """Looks at a generator while it sends: tells how it goes, and ends it when it is certain."""

    def __init__(self, play: Play, slo: Slo, load: LoadOptions, tell: Callable[[News], None]) -> None:
        self.certificate: Certificate | None = None
        self._play = play
        self._slo = slo
        self._load = load
        self._certifier = Certifier(load.slo_target, load.confidence) if slo.is_stated else None
        self._tell = tell
        self._num_read = 0
        self._counts = {"ok": 0, "bad": 0, "tokens": 0}
        self._ttfts: deque[float] = deque(maxlen=_RECENT)
        self._gaps: deque[float] = deque(maxlen=8 * _RECENT)  # an answer has many
        self._lags: deque[float] = deque(maxlen=_RECENT)

    def look(self, generator: Generator) -> None:
        self._read(generator.outcomes)
        if self._load.until is not None:
            self._judge(generator)
        self._tell(self._news(generator))

    def finish(self, outcomes: list[Outcome]) -> None:
        """A last look, on all there is, unless it was certain before."""
        if self._certifier is None:
            return
        if self.certificate is None or self.certificate.verdict is Verdict.UNDECIDED:
            # What was cut had not ended by then: without it, only the quick ones would be judged.
            cut = [one for one in outcomes if one.status is Status.CUT]
            still_open = [(one.index, one.arrival_s, bool(one.chunk_s)) for one in cut]
            end_s = max((one.end_s for one in cut), default=0.0)
            known = decided(outcomes, still_open, self._slo, end_s)
            if known.is_bad:
                self.certificate = self._certificate(self._certifier, self._certifier.last_look, known)

    def _judge(self, generator: Generator) -> None:
        certifier = self._certifier
        assert certifier is not None
        if not certifier.is_due(len(generator.outcomes) + generator.num_open):
            return
        known = decided(generator.outcomes, generator.open_arrivals(), self._slo, generator.now_s)
        if not certifier.is_due(len(known.is_bad)):
            return
        self.certificate = self._certificate(certifier, certifier.look, known)
        if self.certificate.verdict is not Verdict.UNDECIDED:
            generator.stop()

    def _certificate(self, certifier: Certifier, look: Look, known: Decided) -> Certificate:
        """look: the certifier's, for now or for good. A request is bad that misses any limit: they are one claim."""
        found = {"slo": known.trials}
        return Certificate(
            verdict=look(len(known.is_bad), found),
            target=self._load.slo_target,
            confidence=self._load.confidence,
            num_requests=len(known.is_bad),
            num_effective=math.floor(known.trials.num_effective),
            num_bad=sum(known.is_bad),
            look=certifier.num_looks,
            num_needed=certifier.num_needed(known.trials),
        )

    def _read(self, outcomes: list[Outcome]) -> None:
        for one in outcomes[self._num_read :]:
            self._counts["ok" if one.is_ok else "bad"] += 1
            self._counts["tokens"] += one.num_output
            self._lags.append(one.send_lag_s)
            if one.is_ok:
                self._ttfts.append(one.ttft_slo_s)
                self._gaps.extend(one.token_gaps_s())
        self._num_read = len(outcomes)

    def _news(self, generator: Generator) -> News:
        elapsed_s, certificate = generator.now_s, self.certificate
        words = ""
        if certificate is not None:
            words = f"{certificate.verdict.value}: {count_words(certificate)}"
        is_timed = self._play.duration_s is not None
        return News(
            elapsed_s=elapsed_s,
            num_sent=generator.num_sent,
            num_planned=None if is_timed and self._play.is_closed else len(self._play.requests),
            duration_s=self._play.duration_s,
            num_open=generator.num_open,
            num_ok=self._counts["ok"],
            num_bad=self._counts["bad"],
            request_rate=self._counts["ok"] / elapsed_s,
            token_rate=self._counts["tokens"] / elapsed_s,
            ttft_p50_ms=_quantile_ms(self._ttfts, 0.5),
            ttft_p95_ms=_quantile_ms(self._ttfts, 0.95),
            itl_p50_ms=_quantile_ms(self._gaps, 0.5),
            lag_p99_ms=_quantile_ms(self._lags, 0.99),
            certificate=words,
        )


def _quantile_ms(values: Sequence[float], quantile: float) -> float | None:
    """The nearest of the values. Nothing is sent while it is looked for, and numpy would take milliseconds."""
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))] * 1e3
