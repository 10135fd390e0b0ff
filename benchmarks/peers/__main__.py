"""`python -m benchmarks.peers`, or `python benchmarks/peers` from anywhere."""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path

if __package__:
    from benchmarks.peers.command import main

    # What `kill` sends ends the run as Ctrl-C does: children first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
else:  # run as a directory: its modules import each other by their full names
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    runpy.run_module("benchmarks.peers", run_name="__main__", alter_sys=True)
