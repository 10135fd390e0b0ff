"""Sessions come and go on one thread while the engine's sends them its news."""

from __future__ import annotations

from typing import cast

from noria.core.outputs import Delta
from noria.engine.remote.host import Newsroom, Session


class Ledger:
    """Stands for a session; notes what it is told, and whether that was after its socket was closed."""

    id = 1
    knows_blocks = False

    def __init__(self) -> None:
        self.is_closed = False
        self.told: list[str] = []

    def tell(self, message: object) -> None:
        self.told.append("late" if self.is_closed else "in time")

    def end_news(self) -> None:
        self.is_closed = True


class Meanwhile(list[Session]):
    """Sessions that are to stay. While they are looked through, the engine's thread has news for one that is not."""

    def __init__(self, newsroom: Newsroom, leaving: Session) -> None:
        super().__init__()
        self._newsroom = newsroom
        self._leaving = leaving

    def __contains__(self, session: object) -> bool:
        self._newsroom.deliver(self._leaving, (Delta("a"),))
        return super().__contains__(session)


def test_a_session_that_leaves_is_told_nothing_once_it_is_closed() -> None:
    newsroom = Newsroom(on_lost=lambda session: None)
    ledgers = [Ledger(), Ledger(), Ledger()]
    sessions = [cast(Session, ledger) for ledger in ledgers]
    newsroom.set_sessions(sessions)
    newsroom.deliver(sessions[0], (Delta("a"),))
    assert ledgers[0].told == ["in time"]
    newsroom.set_sessions(Meanwhile(newsroom, sessions[0]))
    newsroom.close_left()
    assert all(ledger.is_closed for ledger in ledgers)
    assert "late" not in [word for ledger in ledgers for word in ledger.told]
