"""The tightest limit on the process counts, wherever it is set."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noria.config.errors import ConfigError
from noria.config.hardware import Hardware, probe_cpu
from support_config import GIB, MIB, FakeSystem

PAGE = resource.getpagesize()
V1_NO_LIMIT = 2**63 - 4096  # what version 1 says where nobody set one
UNLIMITED = resource.RLIM_INFINITY


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    return FakeSystem(tmp_path, total=16 * GIB, available=12 * GIB)


def probe(system: FakeSystem, address_space: int = UNLIMITED, cpus: int = 8) -> Hardware:
    return probe_cpu(system.root, address_space, cpus)


def v2(system: FakeSystem, group: str, shown_root: str = "/") -> None:
    system.groups(f"0::{group}")
    system.mount("cgroup2", shown_root, "/sys/fs/cgroup", "rw,nsdelegate")


def v1(system: FakeSystem, group: str, shown_root: str = "/") -> None:
    system.groups(f"11:memory:{group}", f"4:cpu,cpuacct:{group}", "1:name=systemd:/")
    system.mount("cgroup", shown_root, "/sys/fs/cgroup/memory", "rw,memory")
    system.mount("cgroup", shown_root, "/sys/fs/cgroup/cpu,cpuacct", "rw,cpu,cpuacct")


def test_without_control_groups_the_machine_is_the_limit(system: FakeSystem) -> None:
    found = probe(system)
    assert found == Hardware(
        "cpu", 16 * GIB, 12 * GIB, 2000 * PAGE, "memory of the machine", 8, "CPU affinity"
    )


def test_a_v2_limit_of_the_own_group_counts(system: FakeSystem) -> None:
    v2(system, "/app")
    system.v2_memory("app", 1500 * MIB, used=500 * MIB, inactive_file=100 * MIB)
    found = probe(system)
    assert found.total_memory_bytes == 1500 * MIB
    assert found.available_memory_bytes == 1100 * MIB  # page cache that can be dropped is not in the way
    assert found.memory_limit_source == "/sys/fs/cgroup/app/memory.max"


def test_inside_a_container_the_limit_is_at_the_mounts_root(system: FakeSystem) -> None:
    v2(system, "/")
    system.v2_memory("", 1 * GIB)
    assert probe(system).total_memory_bytes == 1 * GIB


def test_v2_max_is_no_limit(system: FakeSystem) -> None:
    v2(system, "/app")
    system.v2_memory("app", "max", used=5 * GIB)
    found = probe(system)
    assert (found.total_memory_bytes, found.memory_limit_source) == (16 * GIB, "memory of the machine")


def test_a_limit_of_a_group_above_counts(system: FakeSystem) -> None:
    v2(system, "/slice/pod/container")
    system.v2_memory("slice/pod/container", "max")
    system.v2_memory("slice/pod", 2 * GIB, used=1 * GIB)
    system.v2_memory("slice", 4 * GIB, used=3584 * MIB)
    found = probe(system)
    assert found.memory_limit_source == "/sys/fs/cgroup/slice/pod/memory.max"
    assert found.total_memory_bytes == 2 * GIB
    assert found.available_memory_bytes == 512 * MIB  # another group's limit may leave less than the tightest


def test_memory_high_counts_like_a_limit(system: FakeSystem) -> None:
    v2(system, "/app")
    system.v2_memory("app", 4 * GIB)
    system.write("sys/fs/cgroup/app/memory.high", f"{3 * GIB}\n")
    assert probe(system).memory_limit_source == "/sys/fs/cgroup/app/memory.high"
    assert probe(system).total_memory_bytes == 3 * GIB


def test_a_v1_limit_counts(system: FakeSystem) -> None:
    v1(system, "/docker/abc")
    system.v1_memory("docker/abc", 3 * GIB, used=2 * GIB, inactive_file=1 * GIB)
    system.v1_memory("docker", V1_NO_LIMIT)
    found = probe(system)
    assert (found.total_memory_bytes, found.available_memory_bytes) == (3 * GIB, 2 * GIB)
    assert found.memory_limit_source == "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes"


def test_the_huge_number_of_v1_is_no_limit(system: FakeSystem) -> None:
    v1(system, "/")
    system.v1_memory("", V1_NO_LIMIT, used=9 * GIB)
    found = probe(system)
    assert (found.total_memory_bytes, found.available_memory_bytes) == (16 * GIB, 12 * GIB)


def test_a_v1_mount_may_show_the_containers_group_as_its_root(system: FakeSystem) -> None:
    v1(system, "/docker/abc/inner", shown_root="/docker/abc")
    system.v1_memory("", 2 * GIB)
    system.v1_memory("inner", 5 * GIB)
    assert probe(system).memory_limit_source == "/sys/fs/cgroup/memory/memory.limit_in_bytes"


@pytest.mark.parametrize("group", ["/../elsewhere", "/somewhere/else"])
def test_a_group_that_no_mount_shows_is_still_bound_by_the_mounts_root(
    system: FakeSystem, group: str
) -> None:
    v2(system, group, shown_root="/docker/abc")
    system.v2_memory("", 2 * GIB)
    assert probe(system).total_memory_bytes == 2 * GIB


def test_in_a_hybrid_system_both_versions_count(system: FakeSystem) -> None:
    system.groups("4:memory:/app", "0::/app")
    system.mount("cgroup", "/", "/sys/fs/cgroup/memory", "rw,memory")
    system.mount("cgroup2", "/", "/sys/fs/cgroup/unified", "rw")
    system.v1_memory("app", 5 * GIB)
    assert probe(system).total_memory_bytes == 5 * GIB
    system.write("sys/fs/cgroup/unified/app/memory.max", f"{4 * GIB}")
    assert probe(system).total_memory_bytes == 4 * GIB


def test_a_mount_point_with_a_blank_in_its_name_is_found(system: FakeSystem) -> None:
    system.groups("0::/")
    system.mount("cgroup2", "/", r"/my\040groups", "rw")
    system.write("my groups/memory.max", f"{GIB}")
    assert probe(system).memory_limit_source == "/my groups/memory.max"


def test_ulimit_counts_by_address_space(system: FakeSystem) -> None:
    found = probe(system, address_space=4 * GIB)
    assert (found.total_memory_bytes, found.memory_limit_source) == (4 * GIB, "RLIMIT_AS (ulimit -v)")
    assert found.available_memory_bytes == 4 * GIB - 5000 * PAGE


def test_use_above_a_limit_leaves_nothing_rather_than_less(system: FakeSystem) -> None:
    v2(system, "/app")
    system.v2_memory("app", 1 * GIB, used=2 * GIB, inactive_file=3 * GIB)
    assert probe(system).available_memory_bytes == 1 * GIB
    system.v2_memory("app", 1 * GIB, used=2 * GIB)
    assert probe(system).available_memory_bytes == 0


@pytest.mark.parametrize("text", ["", "MemTotal:\n", "MemTotal: many kB\n", "MemFree: 12 kB\n"])
def test_a_system_that_does_not_tell_its_memory_is_a_clear_error(system: FakeSystem, text: str) -> None:
    system.write("proc/meminfo", text)
    with pytest.raises(ConfigError, match=r"cannot tell how much memory .*proc/meminfo"):
        probe(system)


@pytest.mark.parametrize(
    ("quota", "cpus"), [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1)]
)
def test_a_v2_cpu_quota_is_rounded_up(system: FakeSystem, quota: str, cpus: int) -> None:
    v2(system, "/app")
    system.write("sys/fs/cgroup/app/cpu.max", quota)
    assert probe(system).num_cpus == cpus


@pytest.mark.parametrize(("quota", "cpus"), [(-1, 8), (400000, 4), (350001, 4), (900000, 8)])
def test_a_v1_cpu_quota_is_rounded_up(system: FakeSystem, quota: int, cpus: int) -> None:
    v1(system, "/app")
    system.write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", f"{quota}\n")
    system.write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n")
    assert probe(system).num_cpus == cpus


def test_a_cpu_quota_above_counts_and_is_named(system: FakeSystem) -> None:
    v2(system, "/slice/app")
    system.write("sys/fs/cgroup/slice/app/cpu.max", "max 100000")
    system.write("sys/fs/cgroup/slice/cpu.max", "300000 100000")
    found = probe(system)
    assert (found.num_cpus, found.cpu_limit_source) == (3, "/sys/fs/cgroup/slice/cpu.max")


limits = st.none() | st.integers(MIB, 64 * GIB)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(depth_limits=st.lists(limits, max_size=4), address_space=limits, quotas=st.lists(limits, max_size=3))
def test_whatever_the_tree_the_smallest_limit_wins(
    tmp_path_factory: pytest.TempPathFactory,
    depth_limits: list[int | None],
    address_space: int | None,
    quotas: list[int | None],
) -> None:
    system = FakeSystem(tmp_path_factory.mktemp("tree"), total=16 * GIB)
    v2(system, "/" + "/".join("abcd"[: len(depth_limits)]))
    for depth, limit in enumerate(depth_limits):
        system.v2_memory("/".join("abcd"[: depth + 1]), "max" if limit is None else limit)
    for depth, quota in enumerate(quotas[: len(depth_limits)]):
        text = "max" if quota is None else str(quota)
        system.write("sys/fs/cgroup/" + "/".join("abcd"[: depth + 1]) + "/cpu.max", f"{text} 1000000000")
    found = probe(system, address_space or UNLIMITED)
    stated = [limit for limit in (*depth_limits, address_space) if limit is not None]
    assert found.total_memory_bytes == min([16 * GIB, *stated])
    assert 0 <= found.available_memory_bytes <= found.total_memory_bytes
    cpus = [math.ceil(quota / 1e9) for quota in quotas[: len(depth_limits)] if quota is not None]
    assert found.num_cpus == min([8, *cpus])


def test_the_real_machine_can_be_probed() -> None:
    found = probe_cpu()
    assert 0 < found.process_memory_bytes < found.total_memory_bytes
    assert 0 < found.available_memory_bytes <= found.total_memory_bytes
    assert 1 <= found.num_cpus <= len(os.sched_getaffinity(0))
