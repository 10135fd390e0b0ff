"""When a request that is submitted now would begin and end, from what the engine was seen to do."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.engine import SchedulerConfig
from noria.core.outputs import FinishReason
from noria.core.request import Params
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.pace import MIN_STEPS, PaceMeter

_MEAN_WEIGHT = 1 / 32  # of a new request in the means
_UNKNOWN_OUTPUT = 128.0  # tokens, until a request has ended


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is in the engine before a request. num_prompt_tokens: of those without a first token.

    mean_output: tokens that they are expected to generate, each.
    """

    num_live: int
    num_prompt_tokens: int
    mean_output: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds. wait_s: until what is ahead lets it begin; own_s: from then on, to its end."""

    wait_s: float
    own_s: float


class Outputs:
    """How long answers are: a share of them goes on to the most it may have, the others stop by themselves."""

    def __init__(self) -> None:
        self._share_whole = 0.0
        self._mean_stopped: float | None = None

    def learn(self, num_tokens: int, is_whole: bool) -> None:
        """is_whole: it was ended by its limit."""
        self._share_whole = _blend(self._share_whole, float(is_whole))
        if not is_whole:
            self._mean_stopped = _blend(self._mean_stopped, num_tokens)

    def expected(self, most: int) -> float:
        stopped = min(float(most), _UNKNOWN_OUTPUT if self._mean_stopped is None else self._mean_stopped)
        return self._share_whole * most + (1 - self._share_whole) * stopped


class Forecaster:
    """Learns from the engine's records. Not thread-safe.

    A request waits for the prompts ahead to be read, and, when all places are taken, for a running one to end for
    each that is too many: at full load every end takes a request's share of the steps.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._meter = PaceMeter(config.step_cost)
        self._max_num_seqs = config.max_num_seqs
        self._num_places = config.max_num_seqs
        self._last: StepRecord | None = None
        self._outputs = Outputs()
        self._mean_prompt: float | None = None
        self._fresh_share = 1.0  # of prompt tokens, those that the prefix cache does not have

    def learn_step(self, record: StepRecord) -> None:
        last, self._last = self._last, record
        if last is not None:
            self._meter.learn(_duration_s(last, record), last.num_prefill_tokens, last.num_decode_seqs)
        # When requests wait though there are slots, memory is what limits them.
        self._num_places = max(1, record.num_running) if record.num_waiting else self._max_num_seqs

    def learn_request(self, record: RequestRecord) -> None:
        if record.finish not in (FinishReason.STOP, FinishReason.LENGTH):
            return
        if record.num_output_tokens:  # else it was to generate nothing
            self._outputs.learn(record.num_output_tokens, record.finish is FinishReason.LENGTH)
        self._mean_prompt = _blend(self._mean_prompt, record.num_prompt_tokens)
        fresh = 1 - record.num_cached_tokens / record.num_prompt_tokens
        self._fresh_share = _blend(self._fresh_share, fresh)

    def expected_output(self, params: Params, most: int) -> float:
        """Tokens that a request will generate which may generate `most`."""
        return float(most) if params.runs_to_limit else self._outputs.expected(most)

    def outlook(self, ahead: Ahead, num_seqs: int, num_prompt_tokens: int, output: float) -> Outlook | None:
        """Of num_seqs sequences with that many prompt tokens in all and `output` tokens each; None while too little
        was seen.
        """
        if self._meter.num_steps < MIN_STEPS:
            return None
        pace = self._meter.pace()
        token_s = pace.prompt_token_s * self._fresh_share
        num_beside = min(self._num_places, ahead.num_live + num_seqs)
        wait_s = token_s * ahead.num_prompt_tokens
        num_too_many = ahead.num_live + num_seqs - self._num_places
        if num_too_many > 0:
            wait_s += num_too_many * self._output_s(ahead.mean_output)
        gap_s = pace.step_s(num_beside)
        if num_too_many > 0 and self._mean_prompt is not None:
            # For each that ends another one's prompt is read meanwhile.
            gap_s += token_s * self._mean_prompt * num_beside / max(1.0, ahead.mean_output)
        return Outlook(wait_s, token_s * num_prompt_tokens + gap_s * output)

    def room_s(self, num_requests: int, num_tokens: int, ahead: Ahead) -> float:
        """Until that many of the queued requests, and of their prompt tokens, have left the queue."""
        if self._meter.num_steps < MIN_STEPS:
            return 0.0
        token_s = self._meter.pace().prompt_token_s * self._fresh_share
        mean_prompt = self._mean_prompt or 0.0
        each_s = token_s * mean_prompt
        if ahead.num_live > self._num_places:
            each_s += self._output_s(ahead.mean_output)
        by_tokens = num_tokens / mean_prompt if mean_prompt else 0.0
        return each_s * max(num_requests, by_tokens)

    def _output_s(self, num_tokens: float) -> float:
        """The share of full steps that an output of that length takes."""
        return num_tokens * self._meter.pace().step_s(self._num_places) / self._num_places


def _duration_s(step: StepRecord, following: StepRecord) -> float:
    """From a step's start to the next one's, if there was work all the time; else what it took itself."""
    own_s = step.plan_s + step.launch_s + step.wait_s + step.commit_s
    if step.num_running or step.num_waiting:
        own_s = max(own_s, following.start_s - step.start_s)
    return max(own_s, 1e-6)


def _blend(mean: float | None, value: float) -> float:
    return float(value) if mean is None else mean + _MEAN_WEIGHT * (value - mean)
