"""D01, D03: sizes were taken from the host's memory, or did not fit each other.

The kind: every automatic size follows the tightest limit on the process, defaults fit each other, and the impossible
fails early with numbers. More made-up containers are tried in tests/config.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noria.config.hardware import probe_cpu
from support_cgroups import can_limit_memory, memory_group
from support_config import FakeSystem, resolved
from support_embedded import embedded_model
from support_processes import processes

PROMPT = "The water wheel turns, and"
CONTAINER = 1500 * 2**20  # bytes


def refused(*flags: object) -> str:
    """What `noria serve` says as it fails."""
    command = [sys.executable, "-m", "noria", "serve", "--port", "0", "--model", embedded_model(), *flags]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=240)
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    assert "Loading weights" not in run.stderr
    return run.stderr


def test_a_server_under_a_limit_takes_its_sizes_from_it(tmp_path: Path) -> None:
    limit_bytes = 3 * 2**30
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, before[1]))
    try:
        started = processes(tmp_path / "log", "--model", embedded_model())
        running = started.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    try:
        assert len(running.ready().tokens(PROMPT, 8)) == 8
        assert "RLIMIT_AS" in running.text()
        assert all(rss < limit_bytes for rss in running.rss_bytes().values())
    finally:
        started.__exit__(None, None, None)


def sizes_in_a_made_up_group(tmp_path: Path) -> None:
    system = FakeSystem(tmp_path)
    system.groups("0::/app")
    system.mount("cgroup2", "/", "/sys/fs/cgroup", "rw")
    system.v2_memory("app", CONTAINER, used=200 * 2**20)
    memory = resolved(machine=probe_cpu(tmp_path, resource.RLIM_INFINITY)).memory
    assert (memory.total_bytes, memory.total_source) == (CONTAINER, "/sys/fs/cgroup/app/memory.max")
    parts = memory.process_bytes + memory.weights_bytes + memory.workspace_bytes + memory.pool_bytes
    assert memory.pool_bytes > 0
    assert parts <= memory.budget_bytes < CONTAINER


def a_server_in_a_real_group(tmp_path: Path) -> None:
    with memory_group(CONTAINER) as group:
        with group.entered():
            started = processes(tmp_path / "log", "--model", embedded_model())
            running = started.__enter__()
        try:
            running.ready()
            pids = running.pids()
            streams = [running.stream(f"{PROMPT} {number}", 40) for number in range(8)]
            assert all(len(stream.end().token_ids) == 40 for stream in streams)
            assert pids.keys() == {"api-0", "engine"}
            assert running.pids() == pids  # nobody was killed
            assert group.path.name in running.text()  # as what sizes were taken from
            assert group.peak_bytes < CONTAINER
        finally:
            started.__exit__(None, None, None)


# Not every system lets a group be made.
@pytest.mark.parametrize(
    "trial", [sizes_in_a_made_up_group, *([a_server_in_a_real_group] if can_limit_memory() else [])]
)
def test_in_a_group_with_a_limit_everything_stays_below_it(
    trial: Callable[[Path], None], tmp_path: Path
) -> None:
    trial(tmp_path)


def test_one_block_serves_what_fits_in_it_with_a_notice(tmp_path: Path) -> None:
    flags = ("--model", embedded_model(), "--num-gpu-blocks-override", 1)
    with processes(tmp_path / "log", *flags) as running:
        assert len(running.ready().tokens([5, 6, 7], 8)) == 8
        assert "note: max_model_len is 16" in running.text()


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        (("--num-gpu-blocks-override", 100, "--max-model-len", 8192), ("8192", "1600")),
        (("--kv-cache-memory", "10MiB", "--max-model-len", 8192), ("180 MiB", "9.84 MiB")),
    ],
)
def test_sizes_that_contradict_each_other_are_both_named(
    flags: tuple[object, ...], sizes: tuple[str, ...]
) -> None:
    said = refused(*flags)
    assert all(size in said for size in sizes), said
