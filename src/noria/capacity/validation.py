"""A recorded run against its simulation: the same arrivals, foretold steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noria.capacity.foretold import foretold
from noria.capacity.run_file import Run
from noria.capacity.simulate import Deployment, simulate
from noria.capacity.step_model import StepModel
from noria.capacity.workers import Workers
from noria.config.errors import ConfigError
from noria.engine.messages import RequestRecord

Values = Sequence[float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """name: what is compared. Seconds, tokens a second, or counts. low, high: where the real one is to be expected."""

    name: str
    real: float
    simulated: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative to what was real; of a count that was 0, the count."""
        return self.simulated / self.real - 1 if self.real else self.simulated


def validate(run: Run, model: StepModel, num_runs: int = 5) -> list[Comparison]:
    """num_runs: simulations; they differ in how step times scatter, and in which model that may be true is taken.

    Raises ConfigError for a run without answers.
    """
    real = figures([one.record for one in run.ended.values()])
    deployment = Deployment(run.config, model)
    arrivals = run.arrivals()

    def work(seed: int) -> dict[str, float]:
        outcomes = simulate(deployment, arrivals, seed=seed).outcomes
        return figures([one.record for one in outcomes if one.record is not None])

    with Workers(work, range(1, num_runs + 1)) as workers:
        found = list(workers.results())
    return [_compared(name, value, [other[name] for other in found]) for name, value in real.items()]


def _compared(name: str, real: float, simulated: Values) -> Comparison:
    expected = foretold(simulated)
    return Comparison(name, real, expected.value, expected.low, expected.high)


def figures(records: Sequence[RequestRecord]) -> dict[str, float]:
    """Of what was answered, by the engine's own records. Raises ConfigError where nothing was."""
    answered = [one for one in records if one.first_token_s is not None]
    if not answered:
        raise ConfigError("the run holds no answer: there is nothing to compare")
    values = {
        name: np.array(list(filter(_is_number, map(read, answered)))) for name, read in _PER_REQUEST.items()
    }
    told = {
        f"{name} {statistic}": compute(numbers)
        for name, numbers in values.items()
        if numbers.size
        for statistic, compute in _STATISTICS.items()
    }
    span_s = max(one.finished_s for one in answered) - min(one.accepted_s for one in answered)
    told["output tokens/s"] = sum(one.num_output_tokens for one in answered) / span_s
    told["preemptions"] = float(sum(one.num_preemptions for one in answered))
    return told


def _is_number(value: float | None) -> bool:
    return value is not None


def _ttft_s(one: RequestRecord) -> float | None:
    return None if one.first_token_s is None else one.first_token_s - one.accepted_s


def _tpot_s(one: RequestRecord) -> float | None:
    if one.num_output_tokens < 2 or one.last_token_s is None or one.first_token_s is None:
        return None
    return (one.last_token_s - one.first_token_s) / (one.num_output_tokens - 1)


_PER_REQUEST: Mapping[str, Callable[[RequestRecord], float | None]] = {
    "TTFT": _ttft_s,
    "TPOT": _tpot_s,
    "E2E": lambda one: one.finished_s - one.accepted_s,
}
_STATISTICS: Mapping[str, Callable[[np.ndarray], float]] = {
    "mean": lambda numbers: float(numbers.mean()),
    "P50": lambda numbers: float(np.quantile(numbers, 0.5)),
    "P95": lambda numbers: float(np.quantile(numbers, 0.95)),
}
