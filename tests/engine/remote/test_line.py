"""The socket of an API process: everything that comes is taken in order, and nothing after its end."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from noria.engine.remote import wire
from noria.engine.remote.line import Line

NUM_MESSAGES = 150  # more than are taken at once


def with_line(act: Callable[[Line, list[int]], None], until: Callable[[list[int]], bool]) -> list[int]:
    """The numbers of the messages that a line takes on which many wait and `act` does something, once nothing more
    comes. Raises whatever a callback of the loop does."""

    async def scenario(directory: str) -> list[int]:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        taken: list[int] = []
        line = Line(directory, "line", lambda message: took(message))

        def took(message: wire.Message) -> None:
            taken.append(message.session)
            act(line, taken)

        with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
            sender.connect(line.endpoint)
            for number in range(NUM_MESSAGES):
                sender.send(wire.encode(wire.Welcome(number)))
            while not until(taken):
                await asyncio.sleep(0.001)
            for _ in range(3):  # turns in which what was put off would come
                await asyncio.sleep(0)
            assert not faults
            sender.close(linger=0)
        line.close()
        return taken

    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(asyncio.wait_for(scenario(directory), timeout=20))


def test_more_messages_than_are_taken_at_once_are_taken_in_order() -> None:
    taken = with_line(lambda line, taken: None, lambda taken: len(taken) == NUM_MESSAGES)
    assert taken == list(range(NUM_MESSAGES))


@pytest.mark.parametrize("last", [1, 63, 64, 65, 128])
def test_a_line_that_a_message_closes_takes_no_more(last: int) -> None:
    def close(line: Line, taken: list[int]) -> None:
        if len(taken) == last:
            line.close()

    assert with_line(close, lambda taken: len(taken) >= last) == list(range(last))


def test_a_line_closed_before_the_rest_gets_its_turn_takes_no_more() -> None:
    def close_next(line: Line, taken: list[int]) -> None:
        if len(taken) == 64:  # before the line asks for its next turn, so this one comes first
            asyncio.get_running_loop().call_soon(line.close)

    assert with_line(close_next, lambda taken: len(taken) >= 64) == list(range(64))
