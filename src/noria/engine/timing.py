"""Times a runner on a few steps before anything is served, on blocks that nobody holds yet."""

from __future__ import annotations

from noria.config.engine import FEWEST_TOKENS, EngineConfig
from noria.config.pooling import PoolingParams
from noria.config.step_budget import StepTime
from noria.core.clock import Clock
from noria.core.plan import NewRequest, StepPlan, Work
from noria.engine.runner_api import Runner
from noria.sampling.params import SamplingParams

_SPEND_S = (
    0.1  # no step is begun that would make the whole take longer, but for those without which nothing is told
)
_SIZES = (16, FEWEST_TOKENS, 256)  # tokens
_REPEATS = 2
_CONTEXT = 2048  # tokens before a chunk, where the cost of a context is looked for
_SAMPLED = SamplingParams(temperature=0.0)
_POOLED = PoolingParams()


class StepTimer:
    """Runs steps of one made-up request each. What their tokens attend to is whatever lies in the blocks: it does
    not matter to the time. The runner has forgotten them all in the end.
    """

    def __init__(self, runner: Runner, clock: Clock, config: EngineConfig) -> None:
        self._runner = runner
        self._clock = clock
        self._config = config
        self._num_steps = 0
        self._known: tuple[str, ...] = ()  # what the runner has to forget
        self.longest = min(
            config.scheduler.max_model_len, config.cache.num_blocks * config.cache.block_size
        )  # tokens of a request

    def time(self, num_new: int, num_computed: int = 0) -> StepTime:
        """A step of num_new tokens that follow num_computed others; num_new + num_computed <= longest."""
        plan = self._plan(num_new, num_computed)
        start_s = self._clock.now()
        self._runner.collect(self._runner.launch(plan))
        return StepTime(num_new, num_computed, self._clock.now() - start_s)

    def close(self) -> None:
        self._runner.collect(self._runner.launch(StepPlan(self._num_steps, (), (), (), self._known)))

    def _plan(self, num_new: int, num_computed: int) -> StepPlan:
        request_id = f"timing-{self._num_steps}"
        length = num_computed + num_new
        token_ids = tuple(index % self._config.model.vocab_size for index in range(length))
        blocks = tuple(range(-(-length // self._config.cache.block_size)))
        samples = self._config.model.has_logits
        plan = StepPlan(
            step=self._num_steps,
            arrivals=(NewRequest(request_id, token_ids, length, _SAMPLED if samples else _POOLED, 0),),
            work=(Work(request_id, num_computed, num_new, blocks, samples),),
            moves=(),
            departures=self._known,
        )
        self._known = (request_id,)
        self._num_steps += 1
        return plan


def time_steps(runner: Runner, clock: Clock, config: EngineConfig) -> list[StepTime]:
    """Timings for config.step_budget.settle_step, in about a tenth of a second where the machine is up to it.

    Chunks of growing size, then a small one behind a context: each some times, for the shortest time tells what
    the step takes and the others what else went on. The very first takes memory and wakes threads: it tells
    nothing. Two sizes are timed in any case: one alone does not tell what tokens cost from what the step does.
    """
    timer = StepTimer(runner, clock, config)
    smallest, *larger = sorted({min(size, timer.longest) for size in _SIZES})
    second, largest = larger[:1], larger[1:]
    timer.time(max([smallest, *second]))
    end_s = clock.now() + _SPEND_S
    times = [timer.time(size) for size in (*[smallest] * _REPEATS, *second)]
    for size in (*second, *largest * _REPEATS):
        if clock.now() + times[-1].seconds * size / times[-1].num_new < end_s:
            times.append(timer.time(size))
    context = min(_CONTEXT, timer.longest - smallest)
    if config.scheduler.enable_chunked_prefill and context > smallest:
        timer.time(smallest, context)
        times += [timer.time(smallest, context) for _ in range(_REPEATS)]
    timer.close()
    return times
