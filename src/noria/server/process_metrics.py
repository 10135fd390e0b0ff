"""Processor time, memory and files of every process of the server; the garbage collector of the one that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class ProcessMetrics(Collector):
    """`process_*` and `python_gc_*`, labelled with the process that they are of.

    pids: process ids by name. own: the name of this process.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]], own: str) -> None:
        self._pids = pids
        self._own = own
        self._pid = 0
        self._of_one = ProcessCollector(pid=lambda: self._pid, registry=None)
        self._of_interpreter = CollectorRegistry()
        GCCollector(registry=self._of_interpreter)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for name, pid in self._pids().items():
            self._pid = pid
            for family in self._of_one.collect():
                _label(families, family, name)
        for family in self._of_interpreter.collect():
            _label(families, family, self._own)
        yield from families.values()


def _label(families: dict[str, Metric], family: Metric, process: str) -> None:
    known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
    for sample in family.samples:
        known.add_sample(sample.name, {**sample.labels, "process": process}, sample.value)
