"""What a process of the server does around its work."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from noria.config.errors import ConfigError, NoriaError

log = logging.getLogger("noria.supervisor")

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_USAGE_STATUS, _FAILURE_STATUS, _FAULT_STATUS = 2, 1, 70


def run_child(name: str, work: Callable[[], int], words: int) -> NoReturn:
    """In a fresh fork: `work`, then the end of the process, with the work's status.

    words: a pipe for what the user has to know when there is an error that says so itself.
    """
    status = _FAULT_STATUS
    try:
        _become(name)
        status = work()
    except NoriaError as error:
        os.write(words, f"noria serve: {error}".encode())
        status = _USAGE_STATUS if isinstance(error, ConfigError) else _FAILURE_STATUS
    except BaseException:
        log.exception("the %s process failed", name)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody reads it any more
                stream.flush()
        # Not sys.exit: what the supervisor has on its stack and registered for its end is not ours.
        os._exit(status)


def _become(name: str) -> None:
    """Leave what was the supervisor's; end when it does."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A terminal and a service manager signal every process; what to do is for the supervisor to say, once.
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(_PR_SET_NAME, f"noria-{name}".encode()[:15])
