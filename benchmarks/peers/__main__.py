"""`python -m benchmarks.peers`, or `python benchmarks/peers` from anywhere."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __package__:
    from benchmarks.peers.command import main

    sys.exit(main())
else:  # run as a directory: its modules import each other by their full names
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    runpy.run_module("benchmarks.peers", run_name="__main__", alter_sys=True)
