"""An operating point that an engine runs at: what of it holds, and what is otherwise than where it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noria.config.hardware import machine_facts
from noria.config.operating_point import OperatingPoint, PointSlo, read_operating_point
from noria.config.option import settings_of
from noria.config.parse import value_of

_SAME_MEMORY = 0.02  # kernels keep more or less of it for themselves


@dataclass(frozen=True, slots=True)
class PointInForce:
    """settings: of the point, those that hold. departures: those that were stated otherwise, with what was stated;
    None: left to be derived."""

    path: str
    point: OperatingPoint
    settings: Mapping[str, Any]
    departures: Mapping[str, Any]

    def words(self) -> str:
        """In one line."""
        sets = ", ".join(f"{name} {value}" for name, value in self.settings.items()) or "nothing"
        source = "" if self.point.source == "real" else f", {self.point.source},"
        rate = f"{self.point.rate.passed:g} requests/s{source} with {_limits(self.point.slo)}"
        told = f"operating point {self.path} ({rate}) sets {sets}"
        if not self.departures:
            return told
        stated = (
            f"{name} {'derived' if value is None else value} ({self.point.settings[name]} in it)"
            for name, value in self.departures.items()
        )
        return f"{told}; stated otherwise: {', '.join(stated)}"

    def about(self) -> dict[str, Any]:
        """What identifies it in a fingerprint."""
        return {
            "file": self.path,
            "hash": self.point.hash,
            "rate": self.point.rate.passed,
            "settings": dict(self.settings),
            "departures": dict(self.departures),
        }

    def warning(self, model: Mapping[str, Any], version: str, machine: Mapping[str, Any]) -> str | None:
        """What is otherwise here than where it was found, in one sentence; None where nothing is.

        model: name and hash, of the fingerprint. machine: as `machine_facts`.
        """
        found = self.point.fingerprint
        others = []
        if not self._is_of(model):
            there = f"{self.point.model.name} ({self.point.model.hash or 'of unknown content'})"
            others.append(f"the model is {model['name']} ({model['hash']}), not {there}")
        if found.engine_version != version:
            others.append(f"the version is {version}, not {found.engine_version}")
        others += [
            f"{name} is {here}, not {found.machine[name]}"
            for name, here in machine.items()
            if name in found.machine and not _is_alike(here, found.machine[name])
        ]
        if not others:
            return None
        return (
            f"the operating point {self.path} was found elsewhere: here {'; '.join(others)}. Its settings hold, its "
            f"rate and its limits need not: noria tune finds them anew"
        )

    def _is_of(self, model: Mapping[str, Any]) -> bool:
        """By the name where a simulation knew no more."""
        found = self.point.model
        return found.hash == model["hash"] if found.hash else found.name == model["name"]

    def warning_here(self, model: Mapping[str, Any], version: str) -> str | None:
        """As `warning`, on this machine."""
        return self.warning(model, version, machine_facts())


def point_in_force(options: Any) -> PointInForce | None:
    """Of a group of options that has `operating_point` and was read over it. Raises ConfigError as reading it does."""
    known = {one.name: one for one in settings_of(type(options))}
    path = value_of(options, known["operating_point"])
    if path is None:
        return None
    point = read_operating_point(path)
    here = {name: value_of(options, known[name]) for name in point.settings if name in known}
    return PointInForce(
        path,
        point,
        settings={name: value for name, value in here.items() if value == point.settings[name]},
        departures={name: value for name, value in here.items() if value != point.settings[name]},
    )


def _limits(slo: PointSlo) -> str:
    limits = (("TTFT", slo.ttft_ms), (slo.itl_stat.upper(), slo.itl_ms))
    words = " and ".join(f"{name} <= {limit:g} ms" for name, limit in limits if limit is not None)
    return f"P{slo.percentile:g} of {words}" if words else "no limit"


def _is_alike(here: Any, there: Any) -> bool:
    if isinstance(here, int) and isinstance(there, int) and here >= 2**20:  # bytes
        return abs(here - there) <= _SAME_MEMORY * max(here, there)
    return here == there
