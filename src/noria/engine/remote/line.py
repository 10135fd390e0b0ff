"""The sockets of an API process: one that everything comes in by, and one to the engine of the day."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import zmq

from noria.config.errors import EngineError
from noria.engine.remote import wire
from noria.engine.remote.host import engine_endpoint

_MAX_UNREAD = (
    1000  # messages of the engine that may wait for this process, beside those that wait at the engine
)
_MAX_UNSENT = 10_000  # commands that may wait for the engine to take them
_MAX_AT_ONCE = 64  # messages to take before others on the loop get their turn


class Line:
    """For the event loop's thread.

    directory: of the sockets; for this user alone. name: of this process in it.
    on_message: called with whatever comes in.
    """

    def __init__(self, directory: str, name: str, on_message: Callable[[wire.Message], None]) -> None:
        self.endpoint = f"ipc://{directory}/{name}-{os.getpid()}"
        self.directory = directory
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._inbound = self._context.socket(zmq.PULL)
        self._inbound.set_hwm(_MAX_UNREAD)
        self._inbound.bind(self.endpoint)
        self._outbound: zmq.Socket | None = None
        self._descriptor = int(self._inbound.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self.read)

    def connect(self, incarnation: int) -> None:
        """To this engine, and no other any more."""
        self.disconnect()
        self._outbound = self._context.socket(zmq.PUSH)
        self._outbound.set_hwm(_MAX_UNSENT)
        self._outbound.connect(engine_endpoint(self.directory, incarnation))

    def disconnect(self) -> None:
        """What has not been sent never will be."""
        if self._outbound is not None:
            self._outbound.close(linger=0)
            self._outbound = None

    def send(self, command: wire.Command) -> None:
        """Raises EngineError when too much waits to be sent."""
        assert self._outbound is not None, f"{command} has nowhere to go"
        try:
            self._outbound.send(wire.encode(command), zmq.NOBLOCK)
        except zmq.Again:
            raise EngineError("the engine takes no commands") from None

    def read(self) -> None:
        """Take what has come. (The descriptor tells of the first message alone, so all of them are taken.)"""
        for _ in range(_MAX_AT_ONCE):
            if self._inbound.closed:  # by what a message led to, or before the rest got its turn
                return
            try:
                content = self._inbound.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_message(wire.decode_message(content))
        self._loop.call_soon(self.read)

    def close(self) -> None:
        self.disconnect()
        self._loop.remove_reader(self._descriptor)
        self._inbound.close(linger=0)
        self._context.term()
