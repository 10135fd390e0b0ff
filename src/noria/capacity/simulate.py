"""Runs a load on simulated engines: the real scheduler and block pool, steps that take the foretold time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from noria.capacity.arrivals import Arrival, Ending
from noria.capacity.noise import Noise, measured_noise
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
    """What is simulated. config: of each replica. noise: makes that of a replica, of step model, seed and number."""

    config: EngineConfig
    model: StepModel
    num_replicas: int = 1
    noise: Callable[[StepModel, int | None, int], Noise] = measured_noise


FollowUp = Callable[[Outcome], Iterable[Arrival]]


def nothing_follows(outcome: Outcome) -> Iterable[Arrival]:
    return ()


def simulate(
    deployment: Deployment,
    arrivals: Iterable[Arrival],
    router: Router | None = None,
    seed: int | None = 0,
    keeps_steps: bool = True,
    follow_up: FollowUp = nothing_follows,
) -> SimulatedRun:
    """The same arguments give the same run.

    arrivals: in any order. seed: of how step times scatter, and, but for 0, of which of the step models that may be
    true is taken; None: the likeliest, and they do not scatter. follow_up: what arrives because
    something ended: the next turn of a conversation, the next request of a closed loop.
    """
    return _Simulation(deployment, router or FewestRequests(), seed, keeps_steps, follow_up).run(arrivals)


class _Simulation:
    """Time goes on where it is earliest: at the next arrival, or at the replica whose clock is furthest behind."""

    def __init__(
        self, deployment: Deployment, router: Router, seed: int | None, keeps_steps: bool, follow_up: FollowUp
    ) -> None:
        self._router = router
        self._follow_up = follow_up
        self._coming: list[tuple[float, int, Arrival]] = []  # a heap
        self._num_arrivals = 0
        self._outcomes: list[Outcome] = []
        model = deployment.model if seed is None else deployment.model.drawn(seed)
        self._replicas = [
            Replica(
                deployment.config,
                model,
                deployment.noise(model, seed, index),
                self._ended,
                index,
                keeps_steps,
            )
            for index in range(deployment.num_replicas)
        ]

    def run(self, arrivals: Iterable[Arrival]) -> SimulatedRun:
        for arrival in arrivals:
            self._expect(arrival)
        while True:
            behind, now_s = None, math.inf
            for replica in self._replicas:
                if replica.has_work and replica.clock.now() < now_s:
                    behind, now_s = replica, replica.clock.now()
            if self._coming and self._coming[0][0] <= now_s:
                self._arrive(heappop(self._coming)[2])
            elif behind is not None:
                behind.step()
            else:
                return self._result()

    def _expect(self, arrival: Arrival) -> None:
        heappush(self._coming, (arrival.at_s, self._num_arrivals, _alone(arrival)))
        self._num_arrivals += 1

    def _arrive(self, arrival: Arrival) -> None:
        for replica in self._replicas:
            replica.idle_until(arrival.at_s)
        chosen = self._router.choose(arrival, self._replicas)
        self._outcomes.append(chosen.submit(arrival))

    def _ended(self, outcome: Outcome) -> None:
        for arrival in self._follow_up(outcome):
            assert arrival.at_s >= outcome.finished_s, f"{arrival.request_id} arrives before what it follows"
            self._expect(arrival)

    def _result(self) -> SimulatedRun:
        return SimulatedRun(
            tuple(self._outcomes),
            tuple(tuple(replica.steps) for replica in self._replicas),
            max(replica.clock.now() for replica in self._replicas),
            sum(replica.runner.num_steps for replica in self._replicas),
            sum(replica.runner.num_foreign for replica in self._replicas),
        )


def _alone(arrival: Arrival) -> Arrival:
    """An answer that was ended from outside ends by itself where it ended then: nobody is there to end it."""
    return replace(arrival, ending=Ending.TOKEN) if arrival.ending is Ending.CANCEL else arrival
