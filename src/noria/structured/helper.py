"""The grammar process, seen from the engine's."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress

from noria.structured import wire
from noria.structured.mask_memory import open_memory

# Its arithmetic is small, and the model's threads have the processors.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_STEPS_LIMIT_S = 1.0  # for what has begun to be sent or received there: the engine's thread does it
# For what fills the buffer while it starts, or does not read any more: seconds and microseconds.
_SENDING_LIMIT = struct.pack("ll", 60, 0)


class GrammarProcess:
    """Starts one. `control`, `steps` and `vetting` are the engine's ends of its channels; on the first it waits for a
    Setup, and the last leads to a child of its own. `memory` holds the masks that it fills. `has_answered`: has made
    something ready.
    """

    def __init__(self) -> None:
        self.has_answered = False
        self._ending = threading.Lock()
        pairs = [socket.socketpair() for _ in range(3)]
        self.memory = open_memory()
        descriptors = [*(theirs.fileno() for _, theirs in pairs), self.memory.fileno()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "noria.structured.process", *map(str, descriptors)],
            pass_fds=descriptors,
            env={**os.environ, **_ONE_THREAD},
            stdin=subprocess.DEVNULL,
        )
        for _, theirs in pairs:
            theirs.close()
        (control, _), (steps, _), (vetting, _) = pairs
        steps.settimeout(_STEPS_LIMIT_S)
        for end in control, vetting:  # whose receiving waits for ever
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SENDING_LIMIT)
        self.control = wire.Channel(control, wire.Prepared)
        self.steps = wire.Channel(steps, wire.Filled)
        self.vetting = wire.Channel(vetting, wire.Vetted)

    def end(self) -> None:
        """Now, whatever it is doing, and with it what it has forked, which may hang. From any thread."""
        with self._ending:
            if self._process.returncode is None:  # or its id may be another's
                self._process.kill()  # first: it forks no more then
                with suppress(OSError):  # it had no group yet
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        for channel in (self.control, self.steps, self.vetting):
            channel.close()
