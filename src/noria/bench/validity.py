"""Whether the figures of a run may be believed: checks that are printed with every run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noria.bench.metrics import Summary, Window
from noria.bench.outcome import Outcome, Status
from noria.bench.slo import Slo
from noria.bench.steady import is_over_saturated, is_stationary, little, trend

_MOST_LAG_S = 0.005
_LAG_SHARE = 0.01  # of the TTFT limit
_LITTLE_ERROR = 0.05
_TOKEN_ERROR = 0.01
_MOST_PREEMPTED = 0.05
_MOST_FOREIGN_HITS = 0.1  # share of prompt tokens found in the prefix cache beyond what the workload shares


@dataclass(frozen=True, slots=True)
class Check:
    """is_ok None: it could not be checked. text: what was found. is_fatal: a run that fails it says nothing."""

    name: str
    is_ok: bool | None
    text: str
    is_fatal: bool = False


def checks(
    outcomes: Sequence[Outcome], summary: Summary, slo: Slo, is_fixed_output: bool, prefix_sharing: float
) -> list[Check]:
    """What speaks for and against the figures.

    is_fixed_output: every answer was asked to have exactly its planned length. prefix_sharing: the share of
    prompt tokens that an endless prefix cache would find if it began empty.
    """
    ended = [one for one in outcomes if one.status is not Status.CUT]
    found = [
        _send_lag(ended, slo),
        _little(ended, summary.window),
        _stationary(ended),
        _prompt_tokens(ended),
        _output_tokens(ended, is_fixed_output),
        _all_answered(ended),
    ]
    if summary.load is not None and summary.load.preempt_rate is not None:
        rate = summary.load.preempt_rate
        text = f"{rate:.1%} preemptions a request (warns above {_MOST_PREEMPTED:.0%})"
        found.append(Check("preemptions", rate <= _MOST_PREEMPTED, text))
    if summary.load is not None and summary.load.prefix_hit_rate is not None:
        found.append(_prefix_hits(summary.load.prefix_hit_rate, prefix_sharing))
    return found


def _prefix_hits(rate: float, sharing: float) -> Check:
    text = f"{rate:.1%} of prompt tokens were in the prefix cache, {sharing:.1%} are shared in the workload"
    is_ok = rate <= sharing + _MOST_FOREIGN_HITS
    if not is_ok:
        text += (
            ": the cache knew prompts before the run. Restart the server, or draw others by --bench-seed; "
            "of short chats it may be the template"
        )
    return Check("prefix_hits", is_ok, text)


def are_valid(found: Sequence[Check]) -> bool:
    return all(check.is_ok is not False for check in found if check.is_fatal)


def _send_lag(ended: Sequence[Outcome], slo: Slo) -> Check:
    if not ended:
        return Check("load_generator", None, "nothing was sent", is_fatal=True)
    limit_s = max(_MOST_LAG_S, _LAG_SHARE * slo.ttft_s if slo.ttft_s < math.inf else 0.0)
    lag_s = float(np.quantile([one.send_lag_s for one in ended], 0.99))
    text = f"P99 send lag {lag_s * 1e3:.2f} ms (limit {limit_s * 1e3:.1f} ms)"
    if lag_s > limit_s:
        text += ": load_generator_degraded, the client itself was late"
    return Check("load_generator", lag_s <= limit_s, text, is_fatal=True)


def _little(ended: Sequence[Outcome], window: Window) -> Check:
    begins = np.array([one.arrival_s for one in ended])
    ends = np.array([one.end_s for one in ended])
    law = little(begins, ends, (window.start_s, window.end_s))
    text = (
        f"L {law.num_inside:.2f}, lambda W {law.rate * law.mean_time_s:.2f}: {law.error:.1%} apart "
        f"(limit {_LITTLE_ERROR:.0%})"
    )
    return Check("little", law.error <= _LITTLE_ERROR if law.num_inside else None, text)


def _stationary(ended: Sequence[Outcome]) -> Check:
    answered = sorted((one for one in ended if one.is_ok), key=lambda one: one.arrival_s)
    if len(answered) < 40:
        return Check("stationary", None, f"{len(answered)} answers are too few to tell (40 needed)")
    times = np.array([one.arrival_s for one in answered])
    ttfts = np.array([one.ttft_slo_s for one in answered])
    ends = np.sort(np.array([one.end_s for one in ended]))
    inside = np.arange(1, len(times) + 1) - np.searchsorted(ends, times)
    moves = trend(ttfts)
    if is_over_saturated(times, inside.astype(np.float64), ttfts):
        return Check(
            "stationary", False, "over-saturated: concurrency and time to first token both keep growing"
        )
    return Check(
        "stationary", is_stationary(moves), f"trend of time to first token {moves:+.2f} (limit 0.60)"
    )


def _prompt_tokens(ended: Sequence[Outcome]) -> Check:
    pairs = [(one.num_prompt, one.num_planned) for one in ended if one.is_ok and one.num_planned is not None]
    if not pairs:
        return Check(
            "prompt_tokens", None, "nobody but the server knows how long the prompts were", is_fatal=True
        )
    counted, planned = (sum(pair[side] or 0 for pair in pairs) for side in (0, 1))
    wrong = sum(first != second for first, second in pairs)
    error = abs(counted - planned) / max(1, planned)
    text = f"{wrong} of {len(pairs)} prompts differ from what was meant; {counted} tokens counted, {planned} planned"
    if error > _TOKEN_ERROR:
        text += ": token_mismatch, another tokenizer or template than assumed"
    return Check("prompt_tokens", error <= _TOKEN_ERROR, text, is_fatal=True)


def _output_tokens(ended: Sequence[Outcome], is_fixed_output: bool) -> Check:
    answered = [one for one in ended if one.is_ok]
    short = sum(one.num_output != one.num_asked for one in answered)
    text = f"{short} of {len(answered)} answers have another length than was asked for"
    if not is_fixed_output:
        return Check("output_tokens", None, f"{text}; ends were the model's to choose")
    return Check("output_tokens", short <= _TOKEN_ERROR * len(answered), text)


def _all_answered(ended: Sequence[Outcome]) -> Check:
    bad = [one for one in ended if not one.is_ok]
    if not bad:
        return Check("answered", True, f"all {len(ended)}")
    return Check(
        "answered", False, f"{len(bad)} of {len(ended)} were not: {bad[0].status.value}, {bad[0].error[:200]}"
    )
