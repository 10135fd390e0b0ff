"""`noria serve` as a child with a candidate's settings. It ends when its owner is done with it, or ends itself."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from noria.config.errors import EngineError

_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 15.0
_LOOK_EVERY_S = 0.05
_LISTENING = re.compile(r"listening on (http://\S+)")
_PR_SET_PDEATHSIG = 1
# The server is reached from this machine alone and by its owner, who has no key.
_NO_KEYS = ("NORIA_API_KEY", "VLLM_API_KEY", "NORIA_API_KEYS_FILE")
_TOLD_LINES = 5  # of the log of a child that did not start


@contextmanager
def serving(
    arguments: Sequence[str], log: Path, may_go_on: Callable[[], bool] = lambda: True
) -> Iterator[str]:
    """The address of a server with these arguments. log: file for what it says.

    Raises EngineError where it does not start, with the end of what it said.
    """
    command = [sys.executable, "-m", "noria", "serve", "--port", "0", "--shutdown-timeout", "0", *arguments]
    environ = {name: value for name, value in os.environ.items() if name not in _NO_KEYS}
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is for the owner, who ends it then.
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environ,
            preexec_fn=_die_with_owner,
        )
    try:
        yield _address(process, log, may_go_on)
    finally:
        _end(process)


def _address(process: subprocess.Popen[bytes], log: Path, may_go_on: Callable[[], bool]) -> str:
    start_s = time.monotonic()
    while time.monotonic() - start_s < _START_LIMIT_S and may_go_on():
        found = _LISTENING.search(log.read_text(errors="replace"))
        if found and _is_ready(found[1]):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(_LOOK_EVERY_S)
    said = log.read_text(errors="replace").strip().splitlines()[-_TOLD_LINES:]
    state = "did not start" if process.poll() is None else f"ended with status {process.poll()}"
    raise EngineError(f"noria serve {state}: {' / '.join(said) or 'it said nothing'}")


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_LIMIT_S)
    # What is left of its group: nothing, unless it did not obey.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _die_with_owner() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
