"""Threads of the reference backend sleep while they wait, so that a server's own threads get the cores."""

from __future__ import annotations

import os
import subprocess
import sys


def policy(**environment: str) -> str:
    code = "import os, noria.kernels.torch_ops.backend; print(os.environ['OMP_WAIT_POLICY'])"
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**inherited, **environment},
    )
    return done.stdout.strip()


def test_waiting_threads_sleep_unless_the_user_says_otherwise() -> None:
    assert policy() == "PASSIVE"
    assert policy(OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
