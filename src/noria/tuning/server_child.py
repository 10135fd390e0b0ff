"""`noria serve` as a child with a candidate's settings. It ends when its owner is done with it, or ends itself."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import orjson

from noria.config.errors import EngineError
from noria.config.flags import environment_names
from noria.config.serving import ServeOptions

_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 15.0
_INFO_LIMIT_S = 10.0
_LOOK_EVERY_S = 0.05
_LISTENING = re.compile(r"listening on (http://\S+)")
_PR_SET_PDEATHSIG = 1
_MANNER = ("--port", "0", "--shutdown-timeout", "0", "--uvicorn-log-level", "info")
_TOLD_LINES = 5  # of the log of a child that did not start
_DIRECT = build_opener(ProxyHandler({}))  # a proxy that the environment names does not lead to this machine


@contextmanager
def serving(arguments: Sequence[str], log: Path) -> Iterator[str]:
    """The address of a server with these arguments, and nothing else stated. log: file for what it says.

    Raises EngineError where it does not start, with the end of what it said.
    """
    command = [sys.executable, "-m", "noria", "serve", *_MANNER, *arguments]
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is for the owner, who ends it then.
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(os.environ),
            preexec_fn=_die_with_owner,
        )
    try:
        yield _address(process, log)
    finally:
        _end(process)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without any setting of a server: what is meant for the user's own one (keys, TLS, logs, files to write into)
    is not meant for a candidate, and of the engine all that holds is among its arguments."""
    settings = environment_names(ServeOptions)
    return {name: value for name, value in environ.items() if name not in settings}


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    start_s = time.monotonic()
    while time.monotonic() - start_s < _START_LIMIT_S:
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
        with _DIRECT.open(f"{url}/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def server_info(url: str) -> dict[str, Any]:
    """What a server of this version tells of its engine: model, settings, machine. Raises EngineError."""
    try:
        with _DIRECT.open(f"{url}/server_info", timeout=_INFO_LIMIT_S) as answer:
            return dict(orjson.loads(answer.read()))
    except (OSError, ValueError) as error:
        raise EngineError(f"the server at {url} does not tell what it runs with: {error}") from None


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
