"""operating_point.json: settings that were found to carry a load within its limits, and what that was found on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from noria.config.asked import EngineOptions
from noria.config.errors import ConfigError
from noria.config.option import Setting, settings_of
from noria.config.parse import Given, did_you_mean
from noria.config.problems import refuse
from noria.config.serving import QueueOptions
from noria.config.strict_json import parse_json, read_record

FORMAT = 1

_AGAIN = "noria tune writes one"
_POOL_SIZES = ("num_gpu_blocks_override", "kv_cache_memory")  # two ways to state one thing
_BLOCK_FORMAT = ("block_size", "kv_cache_dtype")  # what a block takes


@dataclass(frozen=True, slots=True)
class PointModel:
    """As the engine's fingerprint has it. hash: of the tensors' names, shapes, kinds and beginnings; empty: unknown.

    stored_as: how many tensors there are of each kind.
    """

    name: str
    hash: str
    stored_as: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointSlo:
    """The limits, in milliseconds; None where there is none.

    percentile: of requests, or of gaps, that keep them, 0 to 100. itl_stat: itl (all gaps pooled) | tpot (a mean for
    each request).
    """

    percentile: float
    ttft_ms: float | None
    itl_ms: float | None
    itl_stat: str


@dataclass(frozen=True, slots=True)
class PointRate:
    """Requests a second: the highest that passed, and the lowest that failed (None: none did), which is higher.

    binding: what kept it from more, in one word. shape: smooth | cliff, how the limit is met beyond; None where nobody
    knows.
    """

    passed: float
    failed: float | None = None
    binding: str | None = None
    shape: str | None = None

    def __post_init__(self) -> None:
        if self.failed is not None and self.failed <= self.passed:
            raise ConfigError(
                f"passed {self.passed!r} has to be less than failed {self.failed!r}: where a rate failed, none above "
                "it is a promise"
            )


@dataclass(frozen=True, slots=True)
class PointCertificate:
    """What the last look at the rate that passed said; see noria.bench.certificate."""

    verdict: str
    target: float
    confidence: float
    num_requests: int
    num_effective: int
    num_bad: int
    look: int


@dataclass(frozen=True, slots=True)
class PointFigure:
    """A figure at the rate that passed, and the interval it is known within (None: not known)."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PointWorkload:
    """options: those of `noria bench serve` that make it. hash: of them and of the requests that they came to."""

    options: Mapping[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class PointFingerprint:
    """machine: as noria.bench.machine describes it. settings: everything as the engine settled it, by section."""

    engine_version: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """settings: by the names of options of `noria serve`, values as these options read them; see `point_settings`.

    source: real | simulated, where rate and figures come from. measured: by names of figures, as ttft_ms_p95.
    """

    settings: Mapping[str, Any]
    model: PointModel
    slo: PointSlo
    rate: PointRate
    certificate: PointCertificate | None
    measured: Mapping[str, PointFigure]
    workload: PointWorkload
    fingerprint: PointFingerprint
    source: str = "real"
    format: int = FORMAT

    @property
    def hash(self) -> str:
        """Of all of it: two points with one hash are the same."""
        content = json.dumps(_plain(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def point_settings() -> Iterator[Setting]:
    """The settings that an operating point may hold: those of the engine and of its queue, but not another point."""
    for group in (EngineOptions, QueueOptions):
        yield from (
            one for one in settings_of(group) if one.name != "operating_point" and not one.about.secret
        )


def read_operating_point(path: str) -> OperatingPoint:
    """Raises ConfigError naming each entry at fault, and what would be right."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the operating point {path} cannot be read: {error}; {_AGAIN}") from None
    content = parse_json(text, f"the operating point {path}")
    if isinstance(content, dict) and "format" in content and content["format"] != FORMAT:
        raise ConfigError(
            f"{path} is an operating point of format {content['format']!r}, this version reads {FORMAT}: "
            f"run noria tune again"
        )
    if not isinstance(content, dict) or not content.keys() & {"settings", "format"}:
        raise ConfigError(f"{path} is no operating point; {_AGAIN}")
    point = read_record(OperatingPoint, content, path)
    return replace(point, settings=read_settings(point.settings, path))


def over_operating_point(cls: type, given: Mapping[str, Given]) -> dict[str, Given]:
    """What was given for a group of options, over the operating point that is given among it.

    Left out are settings of the point that the group has not, and a size of the KV cache that contradicts what was
    given. Raises ConfigError as reading the point does.
    """
    known = {setting.name: setting for setting in settings_of(cls)}
    stated = given.get("operating_point")
    if stated is None or stated.raw is None:
        return dict(given)
    path = known["operating_point"].read(stated.raw, stated.where)
    settings = read_operating_point(path).settings
    without = _sizes_without_ground(settings, _pool_of(given, known), known)
    under = {
        name: Given(value, f"{name} (in {path})")
        for name, value in settings.items()
        if name in known and name not in without
    }
    return {**under, **given}


def _pool_of(given: Mapping[str, Given], known: Mapping[str, Setting]) -> dict[str, Any]:
    """What is stated of the KV cache, by name. Values that cannot be read are refused later, all at once."""
    found: dict[str, Any] = {}
    for name in (*_POOL_SIZES, *_BLOCK_FORMAT):
        if name in known and name in given and given[name].raw is not None:
            with suppress(ConfigError):
                found[name] = known[name].read(given[name].raw, given[name].where)
    return found


def _sizes_without_ground(
    settings: Mapping[str, Any], over: Mapping[str, Any], known: Mapping[str, Setting]
) -> frozenset[str]:
    """Of a point's settings, statements of the KV cache's size that what is stated over them takes the ground from:
    its size stated in the other way, or blocks of another size, of which as many would take other memory."""
    without = {name for name, other in (_POOL_SIZES, reversed(_POOL_SIZES)) if over.get(other) is not None}
    if any(name in over and over[name] != settings.get(name, known[name].default) for name in _BLOCK_FORMAT):
        without.add("num_gpu_blocks_override")
    return frozenset(without)


def write_operating_point(point: OperatingPoint, path: str) -> None:
    """Raises ConfigError where the file cannot be written, or for settings that no operating point may hold."""
    point = replace(point, settings=read_settings(point.settings, path))
    part = f"{path}.part"
    try:
        Path(part).write_text(json.dumps(_plain(point), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"the operating point {path} cannot be written: {error.strerror}") from None


def read_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """By field name, each read as its option reads it. Raises ConfigError for unknown names and wrong values."""
    known = {one.name: one for one in point_settings()}
    values: dict[str, Any] = {}
    problems = []
    for name, raw in settings.items():
        if name not in known:
            problems.append(
                f"{where}: settings holds {name!r}, which is no setting that an operating point may hold"
                f"{did_you_mean(name, known)}"
            )
            continue
        try:
            values[name] = known[name].default if raw is None else known[name].read(raw, f"{where}: {name}")
        except ConfigError as error:
            problems.append(str(error))
    refuse(problems)
    return values


def _plain(point: OperatingPoint) -> dict[str, Any]:
    # Its format first: whoever looks into the file sees what it is.
    content = asdict(point)
    return {"format": content.pop("format"), **content}
