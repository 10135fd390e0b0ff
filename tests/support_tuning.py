"""Loads and queues for the tests of noria tune whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from noria.bench.certificate import Verdict
from noria.bench.outcome import Outcome, Status
from noria.bench.slo import clipped, tail_count
from noria.bench.stats import Interval, Values
from noria.capacity.model_file import Calibration, save
from noria.capacity.step_model import StepModel
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.engine import EngineConfig
from noria.tuning.limits import Evidence
from noria.tuning.load import TunedLoad, make_load
from noria.tuning.probe import Figures, ProbeResult
from noria.tuning.setting import Setting
from support_capacity import simple_model
from support_engine import engine_config
from support_queues import md1_wait_share, mm1_wait_share


def outcome(
    index: int, arrival_s: float, ttft_s: float, gaps_s: Sequence[float] = (), status: Status = Status.OK
) -> Outcome:
    first_s = arrival_s + ttft_s
    times = tuple((first_s + np.concatenate([[0.0], np.cumsum(gaps_s)])).tolist())
    if status is not Status.OK:
        times = ()
    return Outcome(
        index,
        arrival_s,
        arrival_s,
        times,
        (1,) * len(times),
        times[-1] if times else first_s,
        status,
        8,
        len(times),
        8,
        len(gaps_s) + 1,
    )


def true_rate(limit: float, share: float, is_fixed: bool) -> float:
    """The load at which exactly this share waits no longer than the limit, service times 1 on average."""
    share_of = md1_wait_share if is_fixed else mm1_wait_share
    low, high = 1e-3, 0.999
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share_of(limit, middle) > share else (low, middle)
    return low


@dataclass
class CurveProber:
    """Margins by a formula; verdicts by the margin's sign, unless it is nearer to 0 than `open_below`."""

    margin: Callable[[float], float]
    open_below: float = 0.0
    rates: list[float] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)

    def probe(self, rate: float) -> ProbeResult:
        self.rates.append(rate)
        margin = self.margin(rate)
        verdict = Verdict.PASS if margin <= 0 else Verdict.FAIL
        if abs(margin) < self.open_below:
            verdict = Verdict.UNDECIDED
        return result(rate, verdict, margin)

    def certify(self, rate: float, confidence: float) -> ProbeResult:
        self.confidences.append(confidence)
        return self.probe(rate)


@dataclass(frozen=True)
class Foretold:
    """Foresight as a formula: of a setting, the share of its limit, the rate and the confidence."""

    is_likely: Callable[[Setting, float, float, float], bool]
    least: float = 0.0

    def least_rate(self, confidence: float) -> float:
        return self.least


def result(
    rate: float, verdict: Verdict, margin: float, figures: Figures | None = None, num_requests: int = 100
) -> ProbeResult:
    kept = figures or Figures(goodput=Interval(rate, 0.9 * rate, rate))
    return ProbeResult(rate, verdict, {"ttft": margin, "itl": -3.0}, num_requests, 60.0, figures=kept)


def queue_margin(limit: float, share: float, is_fixed: bool) -> Callable[[float], float]:
    """log(quantile / limit) of the wait, by the queue's own formula; beyond a load of 1 it only grows."""
    share_of = md1_wait_share if is_fixed else mm1_wait_share

    def margin(load: float) -> float:
        if load >= 1:
            return 2.0 + load
        if share_of(0.0, load) >= share:
            return -4.0
        low, high = 0.0, 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if share_of(middle, load) < share else (low, middle)
        return max(-4.0, math.log(high / limit))

    return margin


def queue_evidence(waited: Values, limit: float) -> Evidence:
    """Of waiting times, as limits.evidence has it of outcomes."""
    count = tail_count([clipped(one) for one in waited / limit])
    nowhere = Interval(1.0, math.nan, math.nan)
    return Evidence(float((waited > limit).mean()) * count, count, nowhere, limit)


def calibration(config: EngineConfig | None = None, model: StepModel | None = None) -> Calibration:
    return Calibration(
        config or engine_config(num_blocks=2000, block_size=16, max_num_seqs=4, max_num_batched_tokens=512),
        model or simple_model(),
        1000,
        0.02,
        0.0,
        "test",
        "a machine",
    )


def saved_calibration(path: Path) -> Path:
    save(calibration(), path)
    return path


def tuned_load(prompts: str = "200-400", outputs: str = "10-30", most: int = 100) -> TunedLoad:
    options = WorkloadOptions(prompt_tokens=prompts, output_tokens=outputs)
    return make_load(options, LoadOptions(), most, 4096)
