"""`noria bench serve` as a process of its own, for benchmarks that compare servers or clients."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.noria_server import HOST
from benchmarks.peers.children import ChildFailed, child, tail


def noria_bench(port: int, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
    """The result.json of a load against a server. Raises ChildFailed where there is none within `limit_s`."""
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "run"), Path(folder, "log")
        base = ["--base-url", f"http://{HOST}:{port}", "--out", str(out), "--no-progress"]
        command = [sys.executable, "-m", "noria", "bench", "serve", *base, *arguments]
        with log.open("wb") as sink, child(command, sink.fileno()) as process:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                raise ChildFailed(f"noria bench has not ended within {limit_s:.0f} s: {tail(log)}") from None
        result = out / "result.json"
        if not result.exists():
            raise ChildFailed(f"noria bench ended with status {process.returncode}: {tail(log)}")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def faults(result: dict[str, Any]) -> tuple[str, ...]:
    """What the run's own checks say against it."""
    return tuple(check["text"] for check in result["noria"]["validity"] if not check["is_ok"])
