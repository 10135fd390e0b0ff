"""What API processes count, each in a file of its own, so that any of them can tell of all.

A process writes before it tells, so nobody is ever told of less than before, whichever process answers. One that comes
in another's place goes on from that one's file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from prometheus_client import Metric

_RISING = ("counter", "histogram", "summary")  # types of what only ever grows

Combine = Callable[[float, float], float]
_Series = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and labels


@dataclass(frozen=True, slots=True)
class Entry:
    """What one process, and those before it in its place, have counted.

    seen: of what every process sees the same. own: of what each counts for itself.
    """

    seen: tuple[Metric, ...] = ()
    own: tuple[Metric, ...] = ()


class Ledger:
    """Made before this process sees or counts anything: `before` is what it goes on from.

    directory: for the server's user alone. slot: this process's place, of num_slots.
    """

    def __init__(self, directory: str, slot: int, num_slots: int) -> None:
        self._files = [Path(directory) / f"totals-{place}.json" for place in range(num_slots)]
        self._slot = slot
        predecessor = _read(self._files[slot])
        seen = combined(predecessor.seen, [other.seen for other in self.others()], max)
        self.before = Entry(seen, predecessor.own)

    def write(self, entry: Entry) -> None:
        """This process's. Raises OSError."""
        path = self._files[self._slot]
        draft = path.with_suffix(".new")
        draft.write_bytes(orjson.dumps([_plain(entry.seen), _plain(entry.own)]))
        os.replace(draft, path)  # a reader finds all of it, or all of the one before

    def others(self) -> list[Entry]:
        """What each of the others wrote last."""
        return [_read(path) for place, path in enumerate(self._files) if place != self._slot]


def combined(
    first: Iterable[Metric], others: Iterable[Sequence[Metric]], combine: Combine
) -> tuple[Metric, ...]:
    """Families of several sources: what only grows is combined series by series, the rest is the first source's."""
    own = tuple(first)
    rising = [family for source in others for family in source if family.type in _RISING]
    if not rising:
        return own
    families: dict[str, Metric] = {}
    values: dict[str, dict[_Series, float]] = {}
    for family in (*own, *rising):
        families.setdefault(family.name, family)
        _take(values.setdefault(family.name, {}), family, combine)
    return tuple(_family(family, values[name]) for name, family in families.items())


def _take(values: dict[_Series, float], family: Metric, combine: Combine) -> None:
    for sample in family.samples:
        series = (sample.name, tuple(sample.labels.items()))
        known = values.get(series)
        values[series] = sample.value if known is None else combine(known, sample.value)


def _family(like: Metric, values: dict[_Series, float]) -> Metric:
    family = Metric(like.name, like.documentation, like.type)
    for (name, labels), value in values.items():
        family.add_sample(name, dict(labels), value)
    return family


def _plain(families: Sequence[Metric]) -> list[object]:
    return [
        [
            family.name,
            family.documentation,
            family.type,
            [[sample.name, list(sample.labels.items()), sample.value] for sample in family.samples],
        ]
        for family in families
        if family.type in _RISING
    ]


def _read(path: Path) -> Entry:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Entry()  # it has not counted anything yet
    seen, own = orjson.loads(content)
    return Entry(_families(seen), _families(own))


def _families(plain: Sequence[tuple[str, str, str, list]]) -> tuple[Metric, ...]:
    families = []
    for name, text, kind, samples in plain:
        families.append(Metric(name, text, kind))
        for sample, labels, value in samples:
            families[-1].add_sample(sample, dict(labels), value)
    return tuple(families)
