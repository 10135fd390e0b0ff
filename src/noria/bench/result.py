"""A run as one JSON object: vLLM's fields at the top, and under `noria` what they do not hold."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from typing import Any

import orjson

from noria import __version__
from noria.bench.machine import describe_machine
from noria.bench.metrics import Figure, Summary, summarise
from noria.bench.run import RunResult
from noria.bench.slo import Slo, parse_slo
from noria.bench.validity import Check, checks
from noria.bench.vllm_json import vllm_fields
from noria.config.benching import BenchOptions
from noria.config.option import settings_of
from noria.config.parse import value_of


@dataclass(frozen=True, slots=True)
class Report:
    """A finished run with everything that is said of it."""

    run: RunResult
    slo: Slo
    summary: Summary
    checks: tuple[Check, ...]
    fingerprint: dict[str, Any]
    asked: dict[str, Any]
    confidence: float


def make_report(run: RunResult, options: BenchOptions) -> Report:
    slo = parse_slo(options.load.slo)
    summary = summarise(run.outcomes, slo, run.samples, options.load.confidence)
    sharing = run.workload["prefix_sharing_ratio"]
    found = checks(run.outcomes, summary, slo, options.target.ignore_eos, sharing)
    asked = asked_of(options)
    fingerprint = {
        "client": {"noria": __version__, "machine": describe_machine()},
        **run.facts.fingerprint,
        "workload": run.workload,
        "load": {key: asked[key] for key in _LOAD_KEYS}
        | {"rate": run.rate, "max_concurrency": run.max_concurrency},
    }
    return Report(run, slo, summary, tuple(found), fingerprint, asked, options.load.confidence)


_LOAD_KEYS = ("burstiness", "rate_scaling", "ramp_to", "duration", "requests", "until", "slo", "bench_seed")


def asked_of(options: BenchOptions) -> dict[str, Any]:
    """Every setting of the bench that is not a secret."""
    groups = (options.target, options.workload, options.load)
    return {
        setting.name: value_of(group, setting)
        for group in groups
        for setting in settings_of(type(group))
        if not setting.about.secret
    }


def result_json(report: Report, with_texts: bool) -> dict[str, Any]:
    """Only what JSON knows: what is not a number is null."""
    run, summary = report.run, report.summary
    fields: dict[str, Any] = {
        "date": time.strftime("%Y%m%d-%H%M%S", time.localtime(run.started)),
        "backend": "noria" if run.facts.is_noria else "openai",
        "model_id": run.facts.name,
        "request_rate": "inf" if run.is_closed else run.rate,
        "burstiness": report.asked["burstiness"],
        "max_concurrency": run.max_concurrency,
        **vllm_fields(run.outcomes, report.slo),
        "output_throughput_total": summary.output_throughput_total,
    }
    if with_texts:
        fields["generated_texts"] = [one.text for one in sorted(run.outcomes, key=lambda one: one.sent_s)]
    fields["noria"] = {
        "source": run.source,
        "is_interrupted": run.is_interrupted,
        "confidence": report.confidence,
        "slo": {"words": report.slo.words(), "limits": report.slo},
        "summary": {**plain(summary), "figures_ms": figures_ms(summary.figures)},
        "certificate": run.certificate,
        "validity": [plain(check) for check in report.checks],
        "fingerprint": report.fingerprint,
        "fingerprint_hash": fingerprint_hash(report.fingerprint),
        "settings": report.asked,
        "samples": run.samples,
    }
    fields["noria"]["summary"].pop("figures")
    return dict(plain(fields))


def figures_ms(figures: dict[str, Figure]) -> dict[str, dict[str, Any]]:
    """name -> {count, n_eff, mean, mean_ci, std, p50, p50_ci, ..., max}, in milliseconds."""
    return {name: _figure_ms(one) for name, one in figures.items()}


def _figure_ms(one: Figure) -> dict[str, Any]:
    told: dict[str, Any] = {"count": one.count, "n_eff": round(one.num_effective, 1)}
    intervals = {"mean": one.mean, **{f"p{point}": interval for point, interval in one.quantiles.items()}}
    for name, interval in intervals.items():
        told[name] = interval.value * 1e3
        told[f"{name}_ci"] = [interval.low * 1e3, interval.high * 1e3]
    return {**told, "std": one.std * 1e3, "max": one.maximum * 1e3}


def fingerprint_hash(fingerprint: dict[str, Any]) -> str:
    content = orjson.dumps(plain(fingerprint), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:16]


def request_rows(run: RunResult) -> list[dict[str, Any]]:
    """The request log: one row each, in the order of arrival. `noria bench --trace` plays it again."""
    pieces = {request.index: request.pieces for request in run.requests}
    rows = []
    for one in sorted(run.outcomes, key=lambda one: (one.arrival_s, one.index)):
        row = plain(one)
        row.pop("text")
        said = [[piece.name, piece.num_tokens] for piece in pieces.get(one.index, ())]
        rows.append({**row, "pieces": said})
    return rows


def plain(value: Any) -> Any:
    """Dictionaries, lists, numbers, texts and None; numbers that JSON does not know become None."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return _plain_list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _plain_list(values: Sequence[Any]) -> list[Any]:
    return [plain(value) for value in values]
