"""The runner of a real model: obeys step plans on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from noria.config.errors import EngineError
from noria.config.pooling import PoolingParams
from noria.core.plan import NewRequest, StepPlan, StepResult
from noria.models.model import Model
from noria.runner.adjusting import Adjuster, NoAdjuster
from noria.runner.duties import Duty, Generating, PoolingDuty
from noria.runner.inputs import Share, build_batch
from noria.runner.passes import join_results, split_into_passes
from noria.runner.reader import Reader
from noria.runner.state import RequestState
from noria.runner.worker import Worker
from noria.sampling.token_masks import Masks


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step on its way. masks: what its requests may choose, told when it is collected."""

    plan: StepPlan
    masks: Future[Masks | None] = field(default_factory=Future)


class ModelRunner:
    """Executes step plans with a model; satisfies noria.engine.runner_api.Runner.

    Everything a step does happens on one worker thread, in the order of the launches, so the requests' state
    has one writer and the caller's interpreter is free while kernels compute.

    A step that needs many rows of logits for prompt log-probabilities takes several passes of the model, so
    that their memory is bounded. A resumed request computes, and reports, its prompt's logprobs again.

    Masks are waited for once the logits are there, and only by a step that samples for a request that needs one.
    """

    def __init__(
        self,
        model: Model,
        eos_token_ids: Sequence[int],
        block_size: int,
        adjuster: Adjuster | None = None,
    ) -> None:
        """eos_token_ids: those that min_tokens withholds. block_size: tokens to a block of the model's KV."""
        self._model = model
        self._vocab_size = model.config.vocab_size
        # An id beyond the vocabulary, as some checkpoints have, is never sampled and needs no withholding.
        self._eos_token_ids = tuple(i for i in eos_token_ids if 0 <= i < self._vocab_size)
        self._block_size = block_size
        self._adjuster = adjuster or NoAdjuster()
        self._states: dict[str, RequestState] = {}
        self._worker: Worker[LaunchedStep, StepResult] = Worker("noria-runner", self._execute)
        self._latest: LaunchedStep | None = None
        self._is_shut_down = False

    @property
    def progress(self) -> int:
        return self._model.progress

    def launch(self, plan: StepPlan) -> tuple[LaunchedStep, Future[StepResult]]:
        """Start the step and return at once. Raises EngineError after shutdown."""
        if self._is_shut_down:
            raise EngineError("the runner is shut down; no step can be launched")
        self._latest = step = LaunchedStep(plan)
        return step, self._worker.submit(step)

    def collect(
        self, pending: tuple[LaunchedStep, Future[StepResult]], masks: Masks | None = None
    ) -> StepResult:
        """Wait for the step and return what it sampled. Raises whatever the step raised."""
        step, result = pending
        step.masks.set_result(masks)
        return result.result()

    def shutdown(self) -> None:
        """Finish the steps launched, end the worker thread and forget every request."""
        if not self._is_shut_down:
            self._is_shut_down = True
            if self._latest is not None:
                self._latest.masks.cancel()  # of a step that nobody will collect
            self._worker.close()
        self._states.clear()

    def _execute(self, launched: LaunchedStep) -> StepResult:
        plan = launched.plan
        for request_id in plan.departures:
            assert request_id in self._states, f"step {plan.step}: {request_id} departs but never arrived"
            del self._states[request_id]
        for request in plan.arrivals:
            self._admit(request)
        if plan.moves:
            self._model.copy_blocks([(move.source, move.destination) for move in plan.moves])
        if not plan.work:
            return StepResult(plan.step, ())
        shares = []
        for work in plan.work:
            state = self._states.get(work.request_id)
            assert state is not None, f"step {plan.step}: work for {work.request_id}, which never arrived"
            shares.append((state, work))
        results = [self._run_pass(launched, shares) for shares in split_into_passes(shares)]
        return join_results(plan.step, results)

    def _run_pass(self, launched: LaunchedStep, shares: Sequence[Share]) -> StepResult:
        for state, work in shares:
            state.advance(work, self._block_size)
        outputs = self._model.forward(build_batch(shares, self._block_size))
        width = outputs.logits.shape[1]
        assert width in (0, self._vocab_size), f"rows of {width} logits but {self._vocab_size=}"
        reader = Reader(outputs, self._model.sampler, launched.masks, self._adjuster)
        for state, work in shares:
            state.duty.read(state.request_id, work, state.tokens.view(), reader)
        result = reader.result(launched.plan.step)
        for sampled in result.sampled:
            self._states[sampled.request_id].tokens.extend(sampled.token_ids)
        for request_id in result.unready:
            self._states[request_id].retreat()
        return result

    def _admit(self, request: NewRequest) -> None:
        assert request.request_id not in self._states, f"{request.request_id} arrives but is here already"
        self._states[request.request_id] = RequestState(request, self._vocab_size, self._duty_of(request))

    def _duty_of(self, request: NewRequest) -> Duty:
        params = request.params
        if isinstance(params, PoolingParams):
            return PoolingDuty(params, request.num_prompt, self._model.pooling_heads)
        sampled = self._model.sampler.admit(
            params, request.seed, request.token_ids, request.num_prompt, self._eos_token_ids
        )
        return Generating(params, sampled, request.num_prompt)
