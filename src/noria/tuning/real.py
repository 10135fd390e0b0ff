"""Probes on a real server, by the load generator of noria bench, each ended as soon as it is certain."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import uvloop

from noria.bench.certificate import LEAST_TO_JUDGE, Certifier, Counted, Verdict
from noria.bench.generator import Generator
from noria.bench.http_target import open_http_target
from noria.bench.outcome import Outcome
from noria.bench.play import Play
from noria.bench.run import warm_up
from noria.bench.steady import is_stationary, trend
from noria.bench.target import Sample, Target
from noria.config.benching import TargetOptions
from noria.tuning.chance import chance_to_pass
from noria.tuning.figures import measure
from noria.tuning.limits import Evidence, Limits, evidence, num_decided
from noria.tuning.load import TunedLoad, begin_s, least_s, num_warm_up
from noria.tuning.probe import Prober, ProbeResult, judged_by_figures
from noria.tuning.standing import Standing

Look = Callable[[int, Mapping[str, Counted]], Verdict]

_SAMPLE_EVERY_S = 0.5
_TELL_EVERY_S = 1.0  # whoever draws it does so in this thread
_LEAST_FOR_HOPE = 60  # requests after which it is asked whether a verdict may come at all
_ANSWER_LIMIT_S = 600.0
_MOST_LAG_S = 0.005
# Of the limit on the TTFT, from the first to the last quarter of a load: a hundredth too much to come grows a queue by
# five times that.
_LEAST_RISE = 0.02


@dataclass(frozen=True, slots=True)
class Effort:
    """What a probe may cost. confidence: of its verdict. time_left_s: until when it has to be over. least_chance: of a
    verdict, below which it is given up. tell: about once a second, while it lasts."""

    most_requests: int
    confidence: float
    time_left_s: Callable[[], float]
    least_chance: float = 0.1
    tell: Callable[[Standing], None] = lambda standing: None


class RealProber:
    """Every probe sends the same lengths at the same instants at rate 1, but other text: a server remembers prompts."""

    def __init__(self, base_url: str, load: TunedLoad, limits: Limits, effort: Effort) -> None:
        self._options = TargetOptions(base_url=base_url, exact_chunks=True)
        self._load = load
        self._limits = limits
        self._effort = effort
        self._text_seed = time.time_ns() % 2**31

    def probe(self, rate: float) -> ProbeResult:
        """At the confidence of the effort."""
        return self.certify(rate, self._effort.confidence)

    def certify(self, rate: float, confidence: float) -> ProbeResult:
        self._text_seed += 1
        in_time = math.ceil(rate * max(0.0, self._effort.time_left_s()))
        most = min(self._effort.most_requests, max(LEAST_TO_JUDGE, in_time))
        play = self._load.lasting_play(rate, most, self._limits.ttft_s)
        watch = Watch(play, self._limits, replace(self._effort, confidence=confidence))
        return uvloop.run(self._probe(play, rate, watch))

    async def _probe(self, play: Play, rate: float, watch: Watch) -> ProbeResult:
        target = await open_http_target(self._options, None, self._text_seed)
        try:
            await warm_up(target, _ANSWER_LIMIT_S)
            return await self._send(target, play, rate, watch)
        finally:
            target.close()

    async def _send(self, target: Target, play: Play, rate: float, watch: Watch) -> ProbeResult:
        generator = Generator(target, play, _ANSWER_LIMIT_S, watch.look)
        samples: list[Sample] = []
        sampling = asyncio.ensure_future(_sample(target, samples))
        try:
            outcomes = await generator.run()
        finally:
            sampling.cancel()
        return replace(watch.result(rate, outcomes, samples), num_rounds=self._load.rounds(len(outcomes)))


async def _sample(target: Target, samples: list[Sample]) -> None:
    while True:
        sample = await target.sample()
        if sample is not None:
            samples.append(sample)
        await asyncio.sleep(_SAMPLE_EVERY_S)


class _Telling:
    """About once a second, how far a load is. num_planned: requests that count."""

    def __init__(self, play: Play, effort: Effort) -> None:
        self._num_warm_up = num_warm_up(play)
        self.num_planned = len(play.requests) - self._num_warm_up
        self._effort = effort
        self._end_s = play.due[-1][0] if play.due else 0.0
        self._told_s = -math.inf

    def tell(self, generator: Generator, one: Evidence | None, num_needed: int | None) -> None:
        """one: the limit of which most is missing; what came since it was judged tells as much as what came before."""
        if generator.now_s < self._told_s + _TELL_EVERY_S:
            return
        self._told_s = generator.now_s
        num_done = max(0, len(generator.outcomes) - self._num_warm_up)
        growth = max(1.0, num_done / one.num_decided) if one and one.num_decided else 1.0
        left_s = min(self._effort.time_left_s(), self._end_s - generator.now_s)
        num_effective = growth * one.num_effective if one else 0.0
        self._effort.tell(Standing(num_done, self.num_planned, num_effective, num_needed, max(0.0, left_s)))


class Watch:
    """Judges a load while it is sent, and ends it.

    What is cut in the end says nothing of its limits any more. So a load that is ended is judged as it was just before.
    """

    def __init__(self, play: Play, limits: Limits, effort: Effort) -> None:
        self.verdict = Verdict.UNDECIDED
        self._limits = limits
        self._effort = effort
        self._begin_s = begin_s(play)
        self._least_s = self._begin_s + least_s(limits.ttft_s)
        self._telling = _Telling(play, effort)
        self._certifier = Certifier(limits.share, effort.confidence)
        self._found: dict[str, Evidence] = {}
        self._needed: dict[str, int | None] = {}
        self._num_decided = 0
        self._is_ended = False
        self._is_settled = False

    def look(self, generator: Generator) -> None:
        """As the generator's on_look."""
        scarce = self._scarce()
        self._telling.tell(generator, self._found.get(scarce), self._needed.get(scarce, 0))
        is_late = self._effort.time_left_s() <= 0
        if not is_late and not self._is_due(generator):
            return
        look = self._certifier.last_look if is_late else self._certifier.look
        self._judge(look, generator.outcomes, generator.open_arrivals(), generator.now_s)
        if is_late or self.verdict is not Verdict.UNDECIDED or self._is_hopeless(generator.now_s):
            self._is_ended = True
            generator.stop()

    def _scarce(self) -> str:
        """The limit of which most of what is needed is missing; empty before there is any evidence."""

        def missing(name: str) -> tuple[float, float]:
            one, needed = self._found[name], self._needed[name]
            return math.inf if needed is None else needed / max(one.num_effective, 1.0), one.margin

        return max(self._found, key=missing, default="")

    def _is_due(self, generator: Generator) -> bool:
        """Whether enough is decided for another look. Evidence is made only then: meanwhile nothing is sent."""
        if not self._certifier.is_due(len(generator.outcomes) + generator.num_open):
            return False
        still_open, now_s = generator.open_arrivals(), generator.now_s
        count = num_decided(generator.outcomes, self._limits, still_open, now_s, self._begin_s)
        return self._certifier.is_due(count)

    def result(self, rate: float, outcomes: list[Outcome], samples: list[Sample]) -> ProbeResult:
        """With a last look at all there is, unless the load was ended by a look."""
        if not self._is_ended:
            end_s = max((one.end_s for one in outcomes), default=0.0)
            self._judge(self._certifier.last_look, outcomes, [], end_s)
        margins = {name: one.margin for name, one in self._found.items()}
        scarce = self._scarce()
        one = self._found.get(scarce)
        return ProbeResult(
            rate,
            self.verdict,
            margins or dict.fromkeys(self._limits.by_name(), 0.0),
            self._num_decided,
            one.num_effective if one else 0.0,
            one.bad if one else 0.0,
            self._certifier.num_looks,
            self._needed.get(scarce),
            measure(outcomes, samples, self._limits, self._begin_s),
            _lag_note(outcomes),
            is_settled=self._is_settled,
        )

    def _judge(
        self, look: Look, outcomes: list[Outcome], still_open: list[tuple[int, float, bool]], now_s: float
    ) -> None:
        """look: the certifier's, for now or for good."""
        found = evidence(outcomes, self._limits, still_open, now_s, self._begin_s)
        decided = max((one.num_decided for one in found.values()), default=0)
        self._is_settled = now_s >= self._least_s and not self._still_grows(outcomes)
        self._found, self._num_decided = found or self._found, decided
        self._needed = {name: self._certifier.num_needed(one) for name, one in self._found.items()}
        verdict = look(decided, found)
        if verdict is Verdict.PASS and not self._is_settled:
            verdict = Verdict.UNDECIDED
        self.verdict = verdict

    def _still_grows(self, outcomes: list[Outcome]) -> bool:
        """A queue that only begins to grow keeps every limit, for now. A rise that is nothing beside the limit is no
        queue: all first tokens may come equally soon, and the last ones by a hair later."""
        came = sorted((one for one in outcomes if one.is_ok), key=lambda one: one.arrival_s)
        waited = np.array([one.ttft_slo_s for one in came if one.arrival_s >= self._begin_s])
        rising = trend(waited)
        if rising <= 0 or is_stationary(rising):
            return False
        quarters = np.array_split(waited, 4)
        rise_s = float(quarters[-1].mean() - quarters[0].mean())
        return math.isinf(self._limits.ttft_s) or rise_s > _LEAST_RISE * self._limits.ttft_s

    def _is_hopeless(self, now_s: float) -> bool:
        """Whether it is not likely enough to pass once all requests of the probe have come. Not asked of a load that
        has not lasted long enough to say anything by its figures either."""
        if self._num_decided < _LEAST_FOR_HOPE or now_s < self._least_s:
            return False
        growth = max(1.0, self._telling.num_planned / self._num_decided)
        chances = (self._chance(one, growth) for one in self._found.values())
        return min(chances, default=1.0) < self._effort.least_chance

    def _chance(self, one: Evidence, growth: float) -> float:
        """That it passes in the end, were the rest like what came."""
        ahead = (growth - 1) * one.num_effective
        return chance_to_pass(one, ahead, one, self._limits.share, self._certifier.last_alpha)


def _lag_note(outcomes: list[Outcome]) -> str:
    lags = [one.send_lag_s for one in outcomes]
    late_s = float(np.quantile(lags, 0.99)) if lags else 0.0
    return f"the load was sent up to {late_s * 1e3:.0f} ms late" if late_s > _MOST_LAG_S else ""


class Screened:
    """Judges by the figures alone where certainty would take too long: good enough to rank by, no promise."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober

    def probe(self, rate: float) -> ProbeResult:
        return judged_by_figures(self._prober.probe(rate))
