"""What this process may use of the machine: the tightest limit counts, and it is named."""

from __future__ import annotations

import math
import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

from noria.config.cgroups import CpuLimit, MemoryLimit, cpu_limits, memory_limits
from noria.config.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device and its memory as this process may use it.

    total_memory_bytes: the tightest limit, whatever is in use. memory_limit_source: which limit that is.
    available_memory_bytes: what can be taken now on top of what this process holds already.
    process_memory_bytes: what this process holds already; 0 on a device other than the CPU.
    """

    device: str  # cpu | cuda
    total_memory_bytes: int
    available_memory_bytes: int
    process_memory_bytes: int
    memory_limit_source: str
    num_cpus: int
    cpu_limit_source: str


def probe_cpu(
    root: Path = Path("/"), address_space_bytes: int | None = None, num_cpus_by_affinity: int | None = None
) -> Hardware:
    """Look at the CPU and its memory. Call it once the backend is imported: what that took counts as used.

    root: where /proc and /sys are looked for. address_space_bytes, num_cpus_by_affinity: in place of this
    process's own RLIMIT_AS and CPU mask. Raises ConfigError where the system does not tell its memory.
    """
    if address_space_bytes is None:
        address_space_bytes = _address_space_limit()
    if num_cpus_by_affinity is None:
        num_cpus_by_affinity = len(os.sched_getaffinity(0))
    virtual, resident = _process_bytes(root)
    limits = [_host(root), *memory_limits(root)]
    if address_space_bytes != resource.RLIM_INFINITY:
        free = max(address_space_bytes - virtual, 0)
        limits.append(MemoryLimit(address_space_bytes, free, "RLIMIT_AS (ulimit -v)"))
    tightest = min(limits, key=lambda limit: limit.limit_bytes)
    cpus = min(
        [CpuLimit(num_cpus_by_affinity, "CPU affinity"), *cpu_limits(root)],
        key=lambda limit: math.ceil(limit.num_cpus),
    )
    return Hardware(
        device="cpu",
        total_memory_bytes=tightest.limit_bytes,
        available_memory_bytes=min(limit.free_bytes for limit in limits),
        process_memory_bytes=resident,
        memory_limit_source=tightest.source,
        num_cpus=math.ceil(cpus.num_cpus),
        cpu_limit_source=cpus.source,
    )


def machine_facts() -> dict[str, str | int]:
    """What a machine's speed hangs on most."""
    return {
        "processor": processor_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": probe_cpu().total_memory_bytes,
    }


def processor_name(root: Path = Path("/")) -> str:
    """As the kernel calls it; the architecture where it does not say."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _host(root: Path) -> MemoryLimit:
    path = root / "proc/meminfo"
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        sizes = {
            name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)
        }
        total = sizes["MemTotal"]
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ConfigError(
            f"cannot tell how much memory this machine has from {path} ({type(error).__name__}: {error}); "
            "Noria needs a Linux system with /proc"
        ) from None
    # Kernels before 3.14 do not estimate what is available; free memory is the safe side of it.
    return MemoryLimit(total, sizes.get("MemAvailable", sizes.get("MemFree", total)), "memory of the machine")


def _process_bytes(root: Path) -> tuple[int, int]:
    """(address space, resident memory) of this process."""
    try:
        virtual, resident = (root / "proc/self/statm").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return 0, 0
    page = resource.getpagesize()
    return int(virtual) * page, int(resident) * page


def _address_space_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft
