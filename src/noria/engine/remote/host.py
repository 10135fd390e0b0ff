"""The engine's side of the wire: takes commands from every API process and sends them their news.

Two threads send, and a socket is for one thread: verdicts go out on the thread that takes commands, so that they never
wait for a step; news goes out on the engine's, before the next step.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import zmq

from noria.config.errors import EngineError, NoriaError
from noria.core.outputs import Delta
from noria.engine.client import EngineClient
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.orders import Order, read_order
from noria.engine.remote import wire
from noria.engine.remote.decided import Decided
from noria.engine.remote.page import Page

log = logging.getLogger(__name__)

_LOOK_EVERY_MS = 100  # a sign of life, and a look at who is gone
_MAX_UNREAD = 2000  # messages that a client may leave unread, half of them with it; about one a step
_MAX_RECORDS = 16  # steps that may wait for news to travel with
_MAX_AT_ONCE = 64  # commands to take before the next sign of life


class SessionLost(Exception):
    """A client takes no messages. Its requests are over."""


class Session:
    """One client. Called with deltas it is the sink of its requests, on the engine's thread."""

    def __init__(self, context: zmq.Context, hello: wire.Hello, news: Newsroom) -> None:
        self.id = hello.session
        self.slot = hello.slot
        self.api_incarnation = hello.api_incarnation
        self.knows_blocks = False  # what every one of them holds; on the engine's thread
        self.open_ids: set[str] = set()  # added to on the commands' thread, taken from on the engine's
        self._news = news
        self._verdicts = _outbound(context, hello.endpoint)
        self._outbound = _outbound(context, hello.endpoint)

    def __call__(self, deltas: Sequence[Delta]) -> None:
        self.open_ids.difference_update(delta.request_id for delta in deltas if delta.finish is not None)
        self._news.deliver(self, deltas)

    def answer(self, message: wire.Message) -> None:
        """On the commands' thread. Raises SessionLost."""
        _send(self._verdicts, message)

    def tell(self, message: wire.News) -> None:
        """On the engine's thread. Raises SessionLost."""
        _send(self._outbound, message)

    def end_answers(self) -> None:
        """On the commands' thread: nothing more is answered."""
        self._verdicts.close(linger=0)

    def end_news(self) -> None:
        """On the engine's thread: nothing more is told."""
        self._outbound.close(linger=0)


class Newsroom:
    """Spreads records to every session, and deltas to their own. On the engine's thread, unless said otherwise.

    on_lost: told, on that thread, of a session that takes no messages.
    """

    def __init__(self, on_lost: Callable[[Session], None]) -> None:
        self._on_lost = on_lost
        self._sessions: tuple[Session, ...] = ()  # replaced whole: read on one thread, written on another
        self._left: deque[Session] = deque()  # put in on one thread, taken out on another
        self._steps: list[StepRecord] = []
        self._requests: list[RequestRecord] = []
        self._blocks: dict[int, int] = {}  # the state of every block that has ever changed

    def set_sessions(self, sessions: Sequence[Session]) -> None:
        """From any thread."""
        before, self._sessions = self._sessions, tuple(sessions)
        # Only now: the engine's thread closes what it finds there, and must not tell it anything afterwards.
        self._left.extend(one for one in before if one not in sessions)

    def close_left(self) -> None:
        """Close the sockets of sessions that are no more."""
        while self._left:
            self._left.popleft().end_news()

    def on_step(self, record: StepRecord) -> None:
        self._steps.append(record)
        self._blocks.update(record.changed_blocks)
        if len(self._steps) >= _MAX_RECORDS:
            self._spread(None, ())

    def on_request(self, record: RequestRecord) -> None:
        self._requests.append(record)
        self._blocks.update(record.changed_blocks)

    def deliver(self, session: Session, deltas: Sequence[Delta]) -> None:
        """Raises SessionLost."""
        if not self._spread(session, deltas):
            raise SessionLost

    def _spread(self, receiver: Session | None, deltas: Sequence[Delta]) -> bool:
        self.close_left()
        steps, self._steps = tuple(self._steps), []
        requests, self._requests = tuple(self._requests), []
        is_delivered = receiver is None or receiver not in self._sessions
        for session in self._sessions:
            own = tuple(deltas) if session is receiver else ()
            if not (own or steps or requests):
                continue
            try:
                session.tell(wire.News(session.id, own, self._steps_for(session, steps), requests))
                is_delivered |= session is receiver
            except SessionLost:
                self._on_lost(session)
        return is_delivered

    def _steps_for(self, session: Session, steps: tuple[StepRecord, ...]) -> tuple[StepRecord, ...]:
        """The first step that a session hears of brings the state of every block: what changed before, it missed."""
        if session.knows_blocks or not steps:
            return steps
        session.knows_blocks = True
        return (replace(steps[0], changed_blocks=tuple(self._blocks.items())), *steps[1:])


class EngineHost:
    """Serves an engine to the API processes of `page`.

    directory: of the sockets; for this user alone.
    """

    def __init__(self, client: EngineClient, page: Page, directory: str) -> None:
        self._client = client
        self._page = page
        self._sessions: list[Session] = []  # by the commands' thread alone
        self._lost: list[Session] = []  # found so on either thread
        self._lock = threading.Lock()  # guards _lost
        self._newsroom = Newsroom(self._lose)
        self._decided: Decided[tuple[Session, wire.Verdict]] = Decided()
        self._context = zmq.Context()
        self._commands = self._context.socket(zmq.PULL)
        self._commands.set_hwm(0)  # senders have a bound; what has come is looked at at once
        self._commands.bind(engine_endpoint(directory, page.engine().incarnation))
        client.recorder.add_listener(self._newsroom)

    def run(self, orders: int) -> None:
        """Serve until the descriptor `orders` says to end. The thread that calls it takes the commands."""
        poller = zmq.Poller()
        poller.register(self._commands, zmq.POLLIN)
        poller.register(orders, zmq.POLLIN)
        poller.register(self._decided.descriptor, zmq.POLLIN)
        self._page.engine_is_ready()
        while True:
            ready = dict(poller.poll(_LOOK_EVERY_MS))
            if orders in ready and read_order(orders) is Order.QUIT:
                return
            self._take_commands()
            for session, verdict in self._decided.take():
                if session in self._sessions:
                    self._answer(session, verdict)
            self._look()

    def close(self) -> None:
        """After the engine has been shut down: nothing more is sent."""
        self._newsroom.set_sessions(())
        self._newsroom.close_left()
        for session in self._sessions:
            session.end_answers()
        self._commands.close(linger=0)
        self._context.term()

    def _look(self) -> None:
        stats = self._client.stats()
        if not stats.is_alive:
            raise EngineError("the engine died; its log says why")
        self._page.engine_beat(stats.progress)
        with self._lock:
            lost, self._lost = self._lost, []
        gone = [s for s in self._sessions if self._page.api_incarnation(s.slot) != s.api_incarnation]
        for session in (*lost, *gone):
            self._end(session)

    def _take_commands(self) -> None:
        for _ in range(_MAX_AT_ONCE):
            try:
                content = self._commands.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._obey(wire.decode_command(content))
            except wire.DecodeError:
                log.exception("a command of %d bytes could not be read", len(content))

    def _obey(self, command: wire.Command) -> None:
        if isinstance(command, wire.Hello):
            self._welcome(command)
            return
        session = next((one for one in self._sessions if one.id == command.session), None)
        if session is None:
            return  # of a session that is over; whoever sent it knows or will
        if isinstance(command, wire.Cancel):
            self._client.cancel(command.request_ids, command.finish)
        elif isinstance(command, wire.Submit):
            self._submit(session, command)
        elif isinstance(command, wire.Ask):
            self._pass_on(session, command)
        else:
            asker = next((one for one in self._sessions if one.id == command.asker), None)
            if asker is not None:
                self._answer(asker, wire.Replied(asker.id, command.serial, command.content))

    def _pass_on(self, asker: Session, question: wire.Ask) -> None:
        others = [one for one in self._sessions if one is not asker]
        self._answer(asker, wire.AskedOf(asker.id, question.serial, len(others)))
        for one in others:
            asked = wire.Asked(one.id, asker.id, question.serial, question.topic, question.content)
            self._answer(one, asked)

    def _answer(self, session: Session, message: wire.Message) -> None:
        try:
            session.answer(message)
        except SessionLost:
            self._lose(session)

    def _submit(self, session: Session, command: wire.Submit) -> None:
        """Nearly always the verdict is known at once; else it is answered when it is."""
        try:
            requests = wire.unpacked(command.requests)
        except NoriaError as error:
            self._answer(session, wire.Verdict(session.id, command.serial, wire.sent_error(error)))
            return
        ids = [request.request_id for request in requests]
        session.open_ids.update(ids)  # before the first delta can come
        verdict = self._client.submit(requests, session)
        if verdict.done():
            self._answer(session, _told(session, command.serial, ids, verdict))
            return
        verdict.add_done_callback(
            lambda done: self._decided.put((session, _told(session, command.serial, ids, done)))
        )

    def _welcome(self, hello: wire.Hello) -> None:
        for session in [one for one in self._sessions if one.slot == hello.slot]:
            self._end(session)
        session = Session(self._context, hello, self._newsroom)
        self._sessions.append(session)
        self._newsroom.set_sessions(self._sessions)
        self._answer(session, wire.Welcome(session.id))

    def _lose(self, session: Session) -> None:
        with self._lock:
            if session in self._lost:
                return
            self._lost.append(session)
        log.warning("API process %d takes no messages; its requests are cancelled", session.slot)

    def _end(self, session: Session) -> None:
        """Cancel what it asked for and forget it."""
        if session not in self._sessions:
            return
        self._sessions.remove(session)
        self._newsroom.set_sessions(self._sessions)
        session.end_answers()
        self._client.cancel(tuple(session.open_ids))
        self._page.lose_session(session.slot, session.id)


def _told(session: Session, serial: int, ids: Sequence[str], verdict: Future[None]) -> wire.Verdict:
    error = verdict.exception()
    if error is None:
        return wire.Verdict(session.id, serial, None)
    session.open_ids.difference_update(ids)
    if not isinstance(error, NoriaError):
        raise error
    return wire.Verdict(session.id, serial, wire.sent_error(error))


def engine_endpoint(directory: str, incarnation: int) -> str:
    """Where an engine takes commands."""
    return f"ipc://{directory}/engine-{incarnation}"


def _outbound(context: zmq.Context, endpoint: str) -> zmq.Socket:
    socket = context.socket(zmq.PUSH)
    socket.set_hwm(_MAX_UNREAD // 2)
    socket.connect(endpoint)
    return socket


def _send(socket: zmq.Socket, message: wire.Message) -> None:
    try:
        socket.send(wire.encode(message), zmq.NOBLOCK)
    except zmq.Again:
        raise SessionLost from None
