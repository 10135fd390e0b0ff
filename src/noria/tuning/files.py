"""tune.json and operating_point.json."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from noria import __version__
from noria.bench.machine import describe_machine
from noria.bench.result import plain
from noria.bench.stats import Interval
from noria.config.operating_point import (
    OperatingPoint,
    PointCertificate,
    PointFigure,
    PointFingerprint,
    PointModel,
    PointRate,
    PointSlo,
    PointWorkload,
    write_operating_point,
)
from noria.tuning.limits import ItlStat
from noria.tuning.setting import serve_options
from noria.tuning.tuner import Found
from noria.tuning.words import command, headline, sentences


def write_json(found: Found, path: Path) -> None:
    """Every setting with its probes."""
    content = {
        "headline": headline(found),
        "sentences": list(sentences(found)),
        "command": command(found),
        "limits": found.job.limits,
        "chosen": found.chosen,
        "is_real": found.is_real,
        "is_interrupted": found.is_interrupted,
        "gain": found.gain,
        "seconds": found.seconds,
        "workload": {**found.job.load.workload.about(), "hash": found.job.load.hash()},
        "confirmed": list(found.confirmed.values()),
        "broken": [{"setting": setting, "why": why} for setting, why in found.broken.items()],
        "explored": found.explored,
        "front": found.front,
        "sensitivities": found.sensitivities,
        "shifts": found.shifts,
    }
    path.write_bytes(orjson.dumps(plain(content), option=orjson.OPT_INDENT_2))


def write_point(found: Found, workload: dict[str, Any], path: Path) -> None:
    """workload: the options that made it. Raises ConfigError."""
    write_operating_point(operating_point(found, workload), str(path))


def operating_point(found: Found, workload: dict[str, Any]) -> OperatingPoint:
    config = found.chosen.setting.config(found.job.calibration.config)
    limits, told = found.job.limits, found.fingerprint
    model = told.get("model", {})
    return OperatingPoint(
        settings=serve_options(found.job.stated, config),
        model=PointModel(
            model.get("name", config.model_name), model.get("hash", ""), model.get("stored_as", {})
        ),
        slo=PointSlo(
            percentile=100 * limits.share,
            ttft_ms=_ms(limits.ttft_s),
            itl_ms=_ms(limits.itl_s),
            itl_stat="itl" if limits.itl_stat is ItlStat.POOLED else "tpot",
        ),
        rate=_rate(found),
        certificate=_certificate(found),
        measured=dict(_figures(found)),
        workload=PointWorkload(workload, found.job.load.hash()),
        fingerprint=PointFingerprint(
            __version__,
            told.get("machine") or describe_machine(),
            told.get("settings") or plain(asdict(config)),
        ),
        source="real" if found.is_real else "simulated",
    )


def _ms(limit_s: float) -> float | None:
    return limit_s * 1e3 if limit_s < math.inf else None


def _rate(found: Found) -> PointRate:
    rate = found.chosen_rate
    failed = rate.failed if rate.failed < math.inf else None
    return PointRate(found.chosen.best.rate, failed, rate.binding, rate.shape.value)


def _certificate(found: Found) -> PointCertificate | None:
    """Only of what was measured with certainty in mind."""
    confirmed = found.confirmed.get(found.chosen.setting)
    if confirmed is None or not confirmed.is_certified:
        return None
    best = found.chosen.best
    return PointCertificate(
        verdict=best.verdict.value,
        target=found.job.limits.share,
        confidence=found.job.asked.confidence,
        num_requests=best.num_requests,
        num_effective=math.floor(best.num_effective),
        num_bad=math.ceil(best.bad),
        look=best.look,
    )


def _figures(found: Found) -> list[tuple[str, PointFigure]]:
    figures = found.chosen.best.figures
    point = f"p{100 * found.job.limits.share:g}"
    told = {
        "goodput_per_s": (figures.goodput, 1.0),
        f"ttft_ms_{point}": (figures.ttft, 1e3),
        f"itl_ms_{point}": (figures.itl, 1e3),
        "output_tokens_per_s": (_alone(figures.tokens_per_s), 1.0),
        "kv_util_p99": (_alone(figures.kv_util_p99), 1.0),
        "preemptions_per_request": (_alone(figures.preempt_rate), 1.0),
    }
    return [
        (
            name,
            PointFigure(interval.value * factor, _end(interval.low * factor), _end(interval.high * factor)),
        )
        for name, (interval, factor) in told.items()
        if math.isfinite(interval.value)
    ]


def _alone(value: float) -> Interval:
    return Interval(value, math.nan, math.nan)


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None
