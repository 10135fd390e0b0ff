"""Drives a runner by hand-made plans: blocks from a free list, any chunking, any preemption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from noria.config.model import ModelConfig
from noria.core.plan import BlockMove, NewRequest, StepPlan, StepResult, TokenLogprobs, Work
from noria.runner.runner import ModelRunner
from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import Masks
from support_fake_model import FakeModel, fake_config


@dataclass
class Job:
    """What the driver knows of one request. blocks: its table; announced: how many of them the runner knows."""

    request: NewRequest
    token_ids: list[int]
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    announced: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def output_ids(self) -> list[int]:
        return self.token_ids[self.request.num_prompt :]

    @property
    def num_missing(self) -> int:
        """Known tokens without KV."""
        return len(self.token_ids) - self.num_computed


class Driver:
    """A ModelRunner over a FakeModel, and the bookkeeping a scheduler would do."""

    def __init__(self, num_blocks: int = 64, block_size: int = 4, config: ModelConfig | None = None) -> None:
        self.block_size = block_size
        self.model = FakeModel(num_blocks, block_size, config or fake_config())
        self.runner = ModelRunner(self.model, self.model.config.eos_token_ids, block_size)
        self.jobs: dict[str, Job] = {}
        self.free = list(range(num_blocks))
        self.num_steps = 0
        self._arrivals: list[NewRequest] = []
        self._departures: list[str] = []

    def arrive(self, name: str, prompt_ids: Sequence[int], params: SamplingParams, seed: int = 0) -> Job:
        request = NewRequest(name, tuple(prompt_ids), len(prompt_ids), params, seed)
        self.jobs[name] = Job(request, list(prompt_ids))
        self._arrivals.append(request)
        return self.jobs[name]

    def depart(self, name: str) -> Job:
        """Forget a request, in the plan of the next step. The first block freed is the first one reused."""
        job = self.jobs.pop(name)
        self._departures.append(name)
        self.free = job.blocks + self.free
        return job

    def resume(self, job: Job) -> None:
        """Let a departed request arrive again with all the tokens it had."""
        old = job.request
        known = tuple(job.token_ids)
        job.request = NewRequest(old.request_id, known, old.num_prompt, old.params, old.seed)
        job.num_computed, job.blocks, job.announced = 0, [], 0
        self.jobs[old.request_id] = job
        self._arrivals.append(job.request)

    def step(
        self, chunks: dict[str, int], moves: Sequence[BlockMove] = (), masks: Masks | None = None
    ) -> StepResult:
        """Compute so many tokens of each of these; a request whose last known token is among them samples."""
        plan = StepPlan(
            step=self.num_steps,
            arrivals=tuple(self._arrivals),
            work=tuple(self._work(self.jobs[name], count) for name, count in chunks.items()),
            moves=tuple(moves),
            departures=tuple(self._departures),
        )
        self._arrivals, self._departures = [], []
        self.num_steps += 1
        result = self.runner.collect(self.runner.launch(plan), masks)
        assert result.step == plan.step
        self._take_in(result)
        return result

    def run(self, name: str, num_outputs: int) -> list[int]:
        """Step one request, whole prompt first, until it has so many outputs."""
        job = self.jobs[name]
        while len(job.output_ids) < num_outputs:
            self.step({name: job.num_missing})
        return job.output_ids

    def _work(self, job: Job, count: int) -> Work:
        start = job.num_computed
        job.num_computed = start + count
        while len(job.blocks) * self.block_size < job.num_computed:
            job.blocks.append(self.free.pop(0))
        new_blocks = tuple(job.blocks[job.announced :])
        job.announced = len(job.blocks)
        return Work(job.request.request_id, start, count, new_blocks, samples=job.num_missing == 0)

    def _take_in(self, result: StepResult) -> None:
        for sampled in result.sampled:
            job = self.jobs[sampled.request_id]
            job.token_ids.extend(sampled.token_ids)
            job.logprobs.extend(sampled.logprobs)
        for name in result.unready:
            self.jobs[name].num_computed -= 1
        for part in result.prompt_logprobs:
            job = self.jobs[part.request_id]
            job.prompt_logprobs[part.start - 1 :] = part.logprobs
