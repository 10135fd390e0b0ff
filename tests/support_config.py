"""Models and machines, in numbers, for tests of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noria.config.asked import EngineOptions
from noria.config.footprint import Footprint
from noria.config.hardware import Hardware
from noria.config.model import ModelConfig, RopeConfig
from noria.config.operating_point import (
    OperatingPoint,
    PointCertificate,
    PointFigure,
    PointFingerprint,
    PointModel,
    PointRate,
    PointSlo,
    PointWorkload,
)
from noria.config.parse import from_mapping
from noria.config.resolve import resolve
from noria.config.resolved import Resolved

KIB = 2**10
MIB = 2**20
GIB = 2**30


def model(max_position: int = 8192) -> ModelConfig:
    """Shapes of SmolLM2-135M."""
    return ModelConfig(
        architecture="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        max_position=max_position,
        norm_eps=1e-5,
        rope=RopeConfig(),
        tie_word_embeddings=True,
    )


def operating_point(**settings: Any) -> OperatingPoint:
    """One with every entry filled. settings: None but max_num_seqs=32 unless stated."""
    machine = {
        "processor": "A Processor",
        "cpus": 2,
        "memory_bytes": 8 * GIB,
        "system": "Linux",
        "python": "3.10.1",
    }
    return OperatingPoint(
        settings=settings or {"max_num_seqs": 32},
        model=PointModel("tiny", "0123456789abcdef", {"Q8_0": 211, "F32": 61}),
        slo=PointSlo(95.0, 1000.0, 100.0, "itl"),
        rate=PointRate(3.1, 3.25, "itl", "smooth"),
        certificate=PointCertificate("pass", 0.95, 0.95, 120, 100, 1, 2),
        measured={"ttft_ms_p95": PointFigure(640.5, 600.0, 700.0), "output_throughput": PointFigure(190.0)},
        workload=PointWorkload({"prompt_tokens": "128", "output_tokens": "32"}, "fedcba9876543210"),
        fingerprint=PointFingerprint("0.5.0", machine, {"scheduler": {"max_num_seqs": 32}}),
    )


def footprint(**changes: int | str) -> Footprint:
    """What SmolLM2-135M takes in float32: 45 KiB of KV a token, so 720 KiB a block of 16."""
    values: dict[str, int | str] = {
        "dtype": "float32",
        "kv_dtype": "float32",
        "weights_bytes": 538 * MIB,
        "kv_bytes_per_token": 45 * 1024,
        "max_position": 8192,
        "workspace_bytes": 32 * MIB,
    }
    return Footprint(**(values | changes))  # type: ignore[arg-type]


def hardware(
    total: int = 8 * GIB, available: int | None = None, process: int = 200 * MIB, num_cpus: int = 4
) -> Hardware:
    """available: by default all that the process does not hold."""
    return Hardware(
        device="cpu",
        total_memory_bytes=total,
        available_memory_bytes=max(total - process, 0) if available is None else available,
        process_memory_bytes=process,
        memory_limit_source="/sys/fs/cgroup/memory.max",
        num_cpus=num_cpus,
        cpu_limit_source="CPU affinity",
    )


def resolved(
    asked: dict[str, object] | None = None,
    machine: Hardware | None = None,
    takes: Footprint | None = None,
    max_position: int = 8192,
    others: tuple[Footprint, ...] = (),
) -> Resolved:
    """`resolve` for a flat mapping of what is asked."""
    return resolve(
        from_mapping(EngineOptions, asked or {}),
        model(max_position),
        machine or hardware(),
        takes or footprint(),
        "smollm2",
        others,
    )


class FakeSystem:
    """A made-up /proc and /sys below a folder, for `probe_cpu`."""

    def __init__(self, root: Path, total: int = 16 * GIB, available: int = 12 * GIB) -> None:
        self.root = root
        self._mounts: list[str] = []
        self.write(
            "proc/meminfo",
            f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB\n",
        )
        self.write("proc/self/statm", "5000 2000 100 1 0 100 0\n")

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def groups(self, *lines: str) -> None:
        """Lines of /proc/self/cgroup."""
        self.write("proc/self/cgroup", "".join(f"{line}\n" for line in lines))

    def mount(self, kind: str, shown_root: str, point: str, options: str) -> None:
        """A line of /proc/self/mountinfo: a cgroup or cgroup2 file system at `point` shows `shown_root`."""
        self._mounts.append(f"30 23 0:26 {shown_root} {point} rw,nosuid shared:4 - {kind} {kind} {options}\n")
        self.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(self._mounts))

    def v2_memory(self, group: str, limit: object, used: int = 0, inactive_file: int = 0) -> None:
        """group: its folder below /sys/fs/cgroup."""
        folder = f"sys/fs/cgroup/{group}".rstrip("/")
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.current", f"{used}\n")
        self.write(f"{folder}/memory.stat", f"anon 1\ninactive_file {inactive_file}\nactive_file 7\n")

    def v1_memory(self, group: str, limit: int, used: int = 0, inactive_file: int = 0) -> None:
        """group: its folder below /sys/fs/cgroup/memory."""
        folder = f"sys/fs/cgroup/memory/{group}".rstrip("/")
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{used}\n")
        self.write(f"{folder}/memory.stat", f"inactive_file 1\ntotal_inactive_file {inactive_file}\n")
