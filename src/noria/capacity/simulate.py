"""Runs a load on simulated engines: the real scheduler and block pool, steps that take the foretold time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from noria.capacity.arrivals import Arrival, Ending
from noria.capacity.noise import MeasuredNoise, Noise, NoNoise
from noria.capacity.replica import Outcome, Replica
from noria.capacity.routing import FewestRequests, Router
from noria.capacity.step_model import StepModel
from noria.config.engine import EngineConfig
from noria.engine.messages import StepRecord


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """outcomes: in the order of arrival. steps: of each replica. seconds: until the last answer was whole.

    num_steps, num_foreign: over all replicas; the second are outside of what the step model was learnt from.
    """

    outcomes: tuple[Outcome, ...]
    steps: tuple[tuple[StepRecord, ...], ...]
    seconds: float
    num_steps: int
    num_foreign: int

    @property
    def foreign_share(self) -> float:
        return self.num_foreign / self.num_steps if self.num_steps else 0.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is simulated. config: of each replica."""

    config: EngineConfig
    model: StepModel
    num_replicas: int = 1


def simulate(
    deployment: Deployment,
    arrivals: Iterable[Arrival],
    router: Router | None = None,
    seed: int | None = 0,
    keeps_steps: bool = True,
) -> SimulatedRun:
    """The same arguments give the same run.

    arrivals: in the order of their instants. seed: of how step times scatter; None: they do not.
    """
    router = router or FewestRequests()
    replicas = [
        Replica(
            deployment.config, deployment.model, _noise(deployment.model, seed, index), index, keeps_steps
        )
        for index in range(deployment.num_replicas)
    ]
    outcomes: list[Outcome] = []
    for arrival in arrivals:
        for replica in replicas:
            replica.advance(arrival.at_s)
        chosen = router.choose(arrival, replicas)
        chosen.submit(_alone(arrival))
        outcomes.append(chosen.outcomes[arrival.request_id])
    for replica in replicas:
        replica.finish()
    return SimulatedRun(
        tuple(outcomes),
        tuple(tuple(replica.steps) for replica in replicas),
        max(replica.clock.now() for replica in replicas),
        sum(replica.runner.num_steps for replica in replicas),
        sum(replica.runner.num_foreign for replica in replicas),
    )


def _noise(model: StepModel, seed: int | None, index: int) -> Noise:
    return NoNoise() if seed is None else MeasuredNoise(model, seed * 1009 + index)


def _alone(arrival: Arrival) -> Arrival:
    """An answer that was ended from outside ends by itself where it ended then: nobody is there to end it."""
    return replace(arrival, ending=Ending.TOKEN) if arrival.ending is Ending.CANCEL else arrival
