"""What the API processes of a server ask each other, by way of the engine."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from noria.engine.remote import wire

log = logging.getLogger(__name__)

_WAIT_S = 2.0  # a process that is silent for so long is left out

Answer = Callable[[bytes], bytes]
# Sends what a function makes of the session; False where there is no engine to send it to.
Send = Callable[[Callable[[int], wire.Command]], bool]


@dataclass(slots=True)
class _Question:
    """num_asked: how many answers there will be; None until that is known."""

    num_asked: int | None = None
    answers: list[bytes] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        if len(self.answers) == self.num_asked:
            self.done.set()


class Peers:
    """The others, for one of them. For the event loop's thread."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._topics: dict[str, Answer] = {}
        self._serials = itertools.count(1)
        self._open: dict[int, _Question] = {}

    def on_question(self, topic: str, answer: Answer) -> None:
        """What to say when another process asks about a topic."""
        self._topics[topic] = answer

    async def ask(self, topic: str, content: bytes) -> Sequence[bytes]:
        """The answers of all other processes that an engine serves; what is not there has no requests to speak of."""
        serial, question = next(self._serials), _Question()
        self._open[serial] = question
        try:
            if self._send(lambda session: wire.Ask(session, serial, topic, content)):
                await asyncio.wait_for(question.done.wait(), _WAIT_S)
        except asyncio.TimeoutError:
            log.warning("of the other API processes %d answered in time", len(question.answers))
        finally:
            del self._open[serial]
        return question.answers

    def take(self, message: wire.Asked | wire.AskedOf | wire.Replied) -> None:
        """What came over the wire."""
        if isinstance(message, wire.Asked):
            self._reply(message)
            return
        question = self._open.get(message.serial)
        if question is None:
            return  # nobody waits for it any more
        if isinstance(message, wire.AskedOf):
            question.num_asked = message.num_asked
        else:
            question.answers.append(message.content)
        question.look()

    def lose(self) -> None:
        """The engine is gone: no more answers come."""
        for question in self._open.values():
            question.done.set()

    def _reply(self, asked: wire.Asked) -> None:
        answer = self._topics.get(asked.topic)
        content = b"" if answer is None else answer(asked.content)
        self._send(lambda session: wire.Reply(session, asked.asker, asked.serial, content))
