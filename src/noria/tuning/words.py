"""What is said of a search, in sentences and rows: the terminal and the page show the same."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from noria.bench.stats import Interval
from noria.tuning.explore import Explored
from noria.tuning.max_rate import MaxRate, Shape
from noria.tuning.probe import ProbeResult
from noria.tuning.setting import Setting, serve_arguments, serve_options
from noria.tuning.tuner import Found

_NAMES = {"ttft": "TTFT", "itl": "ITL"}
_MOST_ROWS = 10
_MOST_FOREIGN = 0.01
_LEAST_REGRET = 0.01

HEADINGS = (
    "setting",
    "simulated, req/s",
    "measured, req/s",
    "goodput [95 %]",
    "tokens/s",
    "TTFT, ms",
    "ITL, ms",
    "",
)
CHANGE_HEADINGS = ("changed to", "highest rate")
SHIFT_HEADINGS = ("load", "highest rate", "lost beside the best", "longer than max_model_len")


def headline(found: Found) -> str:
    how = "foretold by simulation"
    if found.is_real:
        how = "certified" if found.is_certified else "measured, not certified"
    return (
        f"{found.chosen.best.rate:.3g} requests/s with {found.chosen.setting.words()} ({how}), at "
        f"{found.job.limits.words()}"
    )


def sentences(found: Found) -> Iterator[str]:
    """Why this one, and what to know of it."""
    rate = found.chosen_rate
    yield binding_words(found, rate)
    if found.gain is not None and found.chosen.setting != Setting():
        yield f"That is {found.gain - 1:+.0%} beside the settings as they were calibrated, both at their limit."
    yield certificate_words(found)
    own, best = len(found.job.load.workload.requests), found.chosen.best
    if best.num_rounds > 1:
        yield (
            f"The workload has {own} requests, too few for a queue to grow: they were sent up to {best.num_rounds} "
            "times, with new text."
        )
    if found.num_rejected:
        yield (
            f"max_model_len {found.max_model_len} is less than {found.num_rejected} of {len(found.job.load.lengths)} "
            "requests of this workload take: they are refused, which counts as bad, or their answers are cut."
        )
    foreign = max(
        (one.foreign_share for one in found.explored if one.setting == found.chosen.setting), default=0.0
    )
    if foreign > _MOST_FOREIGN:
        yield (
            f"{foreign:.1%} of the simulated steps lie outside of what was measured; "
            + ("the engine itself was asked" if found.is_real else "let the engine itself be asked")
        )
    for setting, why in found.broken.items():
        yield f"Broke on the engine: {setting.words()}: {why}"
    for fault in found.faults:
        yield f"A part of the search ended early: {fault}"
    if found.is_refuted:
        yield (
            "No operating point is written: on the engine no setting kept the limits at any rate that was tried, and "
            "one missed them where the simulation had foretold that it keeps them."
        )
    if found.is_interrupted:
        yield "The search was interrupted; this is what was found until then."


def binding_words(found: Found, rate: MaxRate) -> str:
    margins = found.chosen.best.margins
    room = ", ".join(f"{_NAMES[name]} {1 - math.exp(margin):.0%}" for name, margin in margins.items())
    words = f"{_NAMES[rate.binding]} binds (room to the limits: {room}); the limit is foretold at {rate.estimate:.3g}"
    if rate.failed < math.inf:
        words += f"; {rate.failed:.3g} requests/s failed"
    if rate.shape is Shape.CLIFF:
        return words + ". It is a cliff: a little more load breaks the limit by far, so keep a distance."
    return words + "."


def certificate_words(found: Found) -> str:
    best = found.chosen.best
    share = f"{100 * found.job.limits.share:g} %"
    if not found.is_real:
        return f"Simulated on {best.num_requests} requests; not confirmed on the engine."
    if found.is_certified:
        return (
            f"Certified: at {best.rate:.3g} requests/s at least {share} keep each limit, at a confidence of "
            f"{found.job.asked.confidence:g}, by {best.num_requests} requests that tell as much as "
            f"{_effective_words(best)}."
        )
    return (
        f"Not certified: {best.num_requests} requests (as much as {best.num_effective:.0f} independent ones) kept the "
        f"limits, which is too few to be sure. {_missing_words(found)}"
    )


def _effective_words(one: ProbeResult) -> str:
    """Independent requests that were had, and needed."""
    needed = "no number would do" if one.num_needed is None else f"{one.num_needed} needed"
    return f"{one.num_effective:.0f} independent ones, {one.bad:.1f} of them late ({needed})"


def _missing_words(found: Found) -> str:
    """How far the tries to be certain were from it."""
    final = found.confirmed[found.chosen.setting].final
    if final is None:
        return "There was no time to certify any rate; give it more --minutes."
    nearest = min(final.probes, key=lambda one: one.missing_s)
    if not nearest.num_effective:
        return f"The try at {nearest.rate:.3g} requests/s had no request that could be judged."
    told = (
        f"The try that came nearest, at {nearest.rate:.3g} requests/s, had {nearest.num_requests} requests that "
        f"tell as much as {_effective_words(nearest)}"
    )
    if math.isinf(nearest.missing_s):
        return f"{told}: at that rate too many are late."
    if not nearest.missing_s and not nearest.is_settled:
        return f"{told}: it was too short, or the TTFT still rose; give it more --minutes."
    return f"{told}: it would have had to last another {nearest.missing_s:.0f} s; give it more --minutes."


def command(found: Found) -> str:
    """What starts a server with the chosen settings."""
    config = found.chosen.setting.config(found.job.calibration.config)
    return shlex.join(["noria", "serve", *serve_arguments(serve_options(found.job.stated, config))])


def rows(found: Found) -> list[tuple[str, ...]]:
    """The chosen one, the measured ones, and the best of the others; those with the same figures are one row."""
    ranked = sorted(found.explored, key=lambda one: (one.setting not in found.confirmed, -one.estimate))
    groups: dict[tuple[str, ...], list[Setting]] = {}
    for one in ranked:
        is_measured = one.setting in found.confirmed
        if is_measured or (one.same_as is None and not one.why_out):
            own = (one.setting.words(),) if is_measured else ()
            groups.setdefault((*own, *_cells(found, one)), []).append(one.setting)
    return [
        (settings[0].words() + alike_words(found, settings), *key[-len(HEADINGS) + 1 :])
        for key, settings in list(groups.items())[:_MOST_ROWS]
    ]


def alike_words(found: Found, settings: Sequence[Setting]) -> str:
    """Which other values were found to make no difference between these, in parentheses; empty where none was."""
    alike = [*settings, *(one.setting for one in found.explored if one.same_as in settings)]
    told = []
    for name, word in _MAY_BE_ALIKE.items():
        values = {_value(found, one, name) for one in alike}
        if len(values) > 1:
            told.append(f"{word} {' = '.join(_value_words(name, sorted(values)))}")
    return f" (no difference: {'; '.join(told)})" if told else ""


_MAY_BE_ALIKE = {
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "tokens",
    "block_size": "block",
    "enable_prefix_caching": "prefix cache",
}


def _value(found: Found, setting: Setting, name: str) -> int:
    config = setting.config(found.job.calibration.config)
    value = getattr(config.scheduler, name, None)
    return int(getattr(config.cache, name) if value is None else value)


def _value_words(name: str, values: list[int]) -> list[str]:
    if name == "enable_prefix_caching":
        return ["on" if value else "off" for value in values]
    return [str(value) for value in values]


def _cells(found: Found, one: Explored) -> tuple[str, ...]:
    """Beside the setting's words."""
    real = found.confirmed.get(one.setting)
    rate = one.rate if real is None else real.settled
    best: ProbeResult | None = None if rate is None else rate.best or rate.probes[0]
    mark = "chosen" if one.setting == found.chosen.setting else ""
    figures = best.figures if best is not None else None
    return (
        f"{one.estimate:.3g}" if one.estimate else "-",
        "-" if real is None else f"{real.estimate:.3g}",
        "-" if figures is None else span(figures.goodput),
        "-" if figures is None else f"{figures.tokens_per_s:.0f}",
        "-" if figures is None else span(figures.ttft, 1e3),
        "-" if figures is None else span(figures.itl, 1e3),
        mark,
    )


def sensitivity_rows(found: Found) -> list[tuple[str, str]]:
    return [
        (one.words, f"{'at most ' if one.at_most else ''}{change_words(one.ratio)}")
        for one in found.sensitivities
    ]


def change_words(ratio: float) -> str:
    """Of a rate, in whole per cent: 0 has no sign."""
    percent = round(100 * (ratio - 1))
    return f"{percent:+d}%" if percent else "0%"


def shift_rows(found: Found) -> list[tuple[str, ...]]:
    """Of a load that is other than stated: what the chosen setting can take of it, and what another would."""
    return [
        (
            one.words,
            "none" if not one.ratio else change_words(one.ratio),
            f"{one.regret:.0%}" + (f" beside {one.best.words()}" if one.regret >= _LEAST_REGRET else ""),
            f"{one.too_long:.1%}" if one.too_long else "",
        )
        for one in found.shifts
    ]


def explored_words(found: Found) -> str:
    alike = sum(one.same_as is not None for one in found.explored)
    out = sum(bool(one.why_out) for one in found.explored)
    return (
        f"{len(found.explored)} settings in {found.seconds:.0f} s: {alike} make no difference from another one, "
        f"{out} were out early, {len(found.confirmed)} were measured on the engine."
    )


def span(interval: Interval, factor: float = 1.0) -> str:
    if math.isnan(interval.value):
        return "-"
    value = _number(interval.value * factor)
    if math.isnan(interval.low):
        return value
    return f"{value} [{_number(interval.low * factor)}, {_number(interval.high * factor)}]"


def _number(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
