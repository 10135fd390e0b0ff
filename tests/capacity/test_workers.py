"""Work that is done in several processes comes back as if it had been done in one."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from noria.capacity import workers
from noria.capacity.workers import Workers
from noria.config.errors import ConfigError, EngineError
from noria.config.hardware import Hardware, probe_cpu


@pytest.fixture(params=[1, 2, 5])
def num_cpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    found: Hardware = replace(probe_cpu(), num_cpus=request.param)
    monkeypatch.setattr(workers, "probe_cpu", lambda: found)
    return found.num_cpus


def test_results_come_in_the_order_of_their_tasks(num_cpus: int) -> None:
    held = {"a": 1}  # what the work knows need not cross
    with Workers(lambda task: (task, task * 2 + held["a"]), range(40)) as several:
        assert list(several.results()) == [(task, task * 2 + 1) for task in range(40)]


def test_there_are_as_many_processes_as_processors_and_none_where_one_suffices(num_cpus: int) -> None:
    for num_tasks in (1, 40):
        with Workers(lambda task: os.getpid(), range(num_tasks)) as several:
            pids = set(several.results())
        is_alone = min(num_cpus, num_tasks) == 1
        assert pids == {os.getpid()} if is_alone else os.getpid() not in pids
        assert len(pids) <= num_cpus


def test_an_error_of_the_work_is_raised_and_the_results_before_it_are_not_lost(num_cpus: int) -> None:
    def work(task: int) -> int:
        if task == 3:
            raise ConfigError("there is no answer to compare")
        return task

    found = []
    with pytest.raises(ConfigError, match="there is no answer"), Workers(work, range(9)) as several:
        for one in several.results():
            found.append(one)
    assert found == [0, 1, 2]


def test_no_process_is_left_when_somebody_stops_halfway(num_cpus: int) -> None:
    with pytest.raises(KeyboardInterrupt), Workers(lambda task: os.getpid(), range(50)) as several:
        pids = [next(several.results())]
        raise KeyboardInterrupt
    for pid in set(pids) - {os.getpid()}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("num_cpus", [2, 5], indirect=True)
def test_a_process_that_is_killed_is_an_error_and_nobody_waits_for_ever(num_cpus: int) -> None:
    def work(task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with pytest.raises(EngineError, match="want of memory"), Workers(work, range(40)) as several:
        list(several.results())
