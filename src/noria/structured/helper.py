"""The grammar process, seen from the engine's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from noria.structured import wire
from noria.structured.mask_memory import open_memory

# Its arithmetic is small, and the model's threads have the processors.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class GrammarProcess:
    """Starts one. `control` and `steps` are the engine's ends of its channels; on the first it waits for a Setup.
    `memory` holds the masks that it fills.
    """

    def __init__(self) -> None:
        pairs = [socket.socketpair(), socket.socketpair()]
        (ours, theirs), (our_steps, their_steps) = pairs
        self.memory = open_memory()
        descriptors = [theirs.fileno(), their_steps.fileno(), self.memory.fileno()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "noria.structured.process", *map(str, descriptors)],
            pass_fds=descriptors,
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the terminal is the engine's to answer
        )
        theirs.close()
        their_steps.close()
        self.control = wire.Channel(ours, wire.Prepared)
        self.steps = wire.Channel(our_steps, wire.Filled)

    def end(self) -> None:
        """Now, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self.control.close()
        self.steps.close()
