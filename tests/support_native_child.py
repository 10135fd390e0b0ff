"""What runs in an interpreter of its own, so that a crash is a failure of the test and not of the session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_child(code: str, timeout_s: float = 800) -> str:
    """The code's output. It can import the tests' helpers. Fails with what it wrote where it does not end well."""
    tests = str(Path(__file__).parent)
    prelude = f"import sys; sys.path.insert(0, {tests!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"the child ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
