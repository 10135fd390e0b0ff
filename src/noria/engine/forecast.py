"""When a request that is submitted now would begin and end, from what the engine was seen to do."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.engine import SchedulerConfig
from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.pace import MIN_STEPS, Pace, PaceMeter

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
    """Seconds. wait_s: until what is ahead lets a request begin; prompt_s, answer_s: what its own parts take then."""

    wait_s: float
    prompt_s: float
    answer_s: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was learned by now, in plain numbers: whoever has them foretells the same.

    pace: None while too little was seen. num_places: sequences that run at once. fresh_share: of prompt tokens, those
    that the prefix cache does not have. mean_prompt: tokens, 0 while none is known. share_whole, mean_stopped: see
    `Outputs`.

    A request waits for the prompts ahead to be read, and, when all places are taken, for a running one to end for
    each that is too many: at full load every end takes a request's share of the steps.
    """

    pace: Pace | None
    num_places: int
    fresh_share: float = 1.0
    mean_prompt: float = 0.0
    share_whole: float = 0.0
    mean_stopped: float = _UNKNOWN_OUTPUT

    def expected_output(self, most: int, runs_to_limit: bool) -> float:
        """Tokens that a request will generate which may generate `most`, and does if it runs to its limit."""
        if runs_to_limit:
            return float(most)
        return self.share_whole * most + (1 - self.share_whole) * min(float(most), self.mean_stopped)

    def outlook(self, ahead: Ahead, num_seqs: int, num_prompt_tokens: int, output: float) -> Outlook | None:
        """Of num_seqs sequences with that many prompt tokens in all and `output` tokens each; None without a pace.

        Each part grows, or stays, with each of the three.
        """
        if self.pace is None:
            return None
        token_s = self.pace.prompt_token_s * self.fresh_share
        num_beside = min(self.num_places, ahead.num_live + num_seqs)
        wait_s = token_s * ahead.num_prompt_tokens
        num_too_many = ahead.num_live + num_seqs - self.num_places
        gap_s = self.pace.step_s(num_beside)
        if num_too_many > 0:
            wait_s += num_too_many * self._output_s(self.pace, ahead.mean_output)
            # For each that ends another one's prompt is read meanwhile.
            gap_s += token_s * self.mean_prompt * num_beside / max(1.0, ahead.mean_output)
        return Outlook(wait_s, token_s * num_prompt_tokens, gap_s * output)

    def room_s(self, num_requests: int, num_tokens: int, ahead: Ahead) -> float:
        """Until that many of the queued requests, and of their prompt tokens, have left the queue."""
        if self.pace is None:
            return 0.0
        each_s = self.pace.prompt_token_s * self.fresh_share * self.mean_prompt
        if ahead.num_live > self.num_places:
            each_s += self._output_s(self.pace, ahead.mean_output)
        by_tokens = num_tokens / self.mean_prompt if self.mean_prompt else 0.0
        return each_s * max(num_requests, by_tokens)

    def _output_s(self, pace: Pace, num_tokens: float) -> float:
        """The share of full steps that an output of that length takes."""
        return num_tokens * pace.step_s(self.num_places) / self.num_places


class Outputs:
    """How long answers are: a share of them goes on to the most it may have, the others stop by themselves."""

    def __init__(self) -> None:
        self.share_whole = 0.0
        self.mean_stopped: float | None = None

    def learn(self, num_tokens: int, is_whole: bool) -> None:
        """is_whole: it was ended by its limit."""
        self.share_whole = _blend(self.share_whole, float(is_whole))
        if not is_whole:
            self.mean_stopped = _blend(self.mean_stopped, num_tokens)


class Forecaster:
    """Learns from the engine's records. Not thread-safe."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._meter = PaceMeter(config.step_cost)
        self._max_num_seqs = config.max_num_seqs
        self._num_places = config.max_num_seqs
        self._last: StepRecord | None = None
        self._outputs = Outputs()
        self._mean_prompt: float | None = None
        self._fresh_share = 1.0
        self._forecast: Forecast | None = None  # of what is learned; made when it is asked for

    def learn_step(self, record: StepRecord) -> None:
        last, self._last = self._last, record
        self._forecast = None
        if last is not None:
            self._meter.learn(_duration_s(last, record), last.num_prefill_tokens, last.num_decode_seqs)
        # When requests wait though there are slots, memory is what limits them.
        self._num_places = max(1, record.num_running) if record.num_waiting else self._max_num_seqs

    def learn_request(self, record: RequestRecord) -> None:
        if record.finish not in (FinishReason.STOP, FinishReason.LENGTH):
            return
        self._forecast = None
        if record.num_output_tokens:  # else it was to generate nothing
            self._outputs.learn(record.num_output_tokens, record.finish is FinishReason.LENGTH)
        self._mean_prompt = _blend(self._mean_prompt, record.num_prompt_tokens)
        fresh = 1 - record.num_cached_tokens / record.num_prompt_tokens
        self._fresh_share = _blend(self._fresh_share, fresh)

    def forecast(self) -> Forecast:
        if self._forecast is None:
            mean_stopped = self._outputs.mean_stopped
            self._forecast = Forecast(
                self._meter.pace() if self._meter.num_steps >= MIN_STEPS else None,
                self._num_places,
                self._fresh_share,
                self._mean_prompt or 0.0,
                self._outputs.share_whole,
                _UNKNOWN_OUTPUT if mean_stopped is None else mean_stopped,
            )
        return self._forecast


def _duration_s(step: StepRecord, following: StepRecord) -> float:
    """From a step's start to the next one's, if there was work all the time; else what it took itself."""
    own_s = step.plan_s + step.launch_s + step.wait_s + step.commit_s
    if step.num_running or step.num_waiting:
        own_s = max(own_s, following.start_s - step.start_s)
    return max(own_s, 1e-6)


def _blend(mean: float | None, value: float) -> float:
    return float(value) if mean is None else mean + _MEAN_WEIGHT * (value - mean)
