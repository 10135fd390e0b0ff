"""The process that the processes of rules are forked from: light, with one thread, and without user code at work.

The engine cannot fork itself, since it has threads; this one has numpy loaded already, so a child takes milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys

from noria.config.plugins import SAMPLERS_GROUP, Entry
from noria.rules.api import ModelFacts
from noria.rules.child import serve
from noria.rules.messages import End, Fork, Preload, decode_command

_MAX_COMMAND_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """argv: the descriptor of the control socket, a packet a command. Standard input: the facts."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the engine, whose end ends this
    facts: ModelFacts = pickle.load(sys.stdin.buffer)
    children: set[int] = set()
    while True:
        content, descriptors, _, _ = socket.recv_fds(control, _MAX_COMMAND_BYTES, 1)
        if not content:
            return
        command = decode_command(content)
        if isinstance(command, Fork):
            children.add(_fork(control, descriptors[0], facts))
        elif isinstance(command, Preload):
            _preload(command)
        elif isinstance(command, End) and command.pid in children:  # not one of a nursery before this one
            children.remove(command.pid)
            os.kill(command.pid, signal.SIGKILL)
            os.waitpid(command.pid, 0)


def _fork(control: socket.socket, descriptor: int, facts: ModelFacts) -> int:
    """Returns the child's id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(descriptor)
        return child
    status = 1
    try:
        control.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # else it went before it could take this one along
            serve(socket.socket(fileno=descriptor), facts)
        status = 0
    finally:
        os._exit(status)


def _preload(command: Preload) -> None:
    # It worked in a child; whatever else happens here, a child will say so.
    try:
        Entry(SAMPLERS_GROUP, "", command.target).load()
    except BaseException as error:
        print(f"noria: {command.target}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
