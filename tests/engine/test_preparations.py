"""Requests that wait for their constraints always hear what became of them."""

from __future__ import annotations

import dataclasses
from concurrent.futures import CancelledError, Future, InvalidStateError

import pytest

from noria.config.errors import EngineError, OverloadError, RequestError
from noria.config.tenant import ANYBODY, Tenant
from noria.engine.preparations import Preparations
from noria.structured.api import NoConstraints
from noria.structured.futures import all_of
from support_intake import request


class Troubled(NoConstraints):
    """prepare raises, or its future does."""

    def __init__(self, error: Exception, is_at_once: bool) -> None:
        self.error = error
        self.is_at_once = is_at_once
        self.forgotten: list[str] = []

    def prepare(self, requests: object) -> Future[None]:
        if self.is_at_once:
            raise self.error
        failed: Future[None] = Future()
        failed.set_exception(self.error)
        return failed

    def forget(self, request_ids: object) -> None:
        self.forgotten += request_ids  # type: ignore[operator]


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("no threads"), CancelledError(), OverflowError("too big")])
def test_what_goes_wrong_in_any_other_way_is_an_engines_error_and_leaves_nothing(
    error: Exception, is_at_once: bool
) -> None:
    constraints = Troubled(error, is_at_once)
    preparations = Preparations(constraints)
    for _ in range(2):  # the id is free again
        verdict = preparations.begin([request("a")], lambda: None, lambda ids: None)
        with pytest.raises(EngineError, match=type(error).__name__):
            verdict.result(timeout=0)
        assert "a" not in preparations
    assert constraints.forgotten == ["a", "a"]


def test_an_id_is_free_again_once_what_was_made_for_it_is_forgotten() -> None:
    class Watched(Troubled):
        def forget(self, request_ids: object) -> None:
            super().forget(name for name in ("a",) if name in preparations)

    constraints = Watched(RequestError("no"), is_at_once=False)
    preparations = Preparations(constraints)
    assert preparations.begin([request("a")], lambda: None, lambda ids: None).done()
    assert constraints.forgotten == ["a"]
    assert "a" not in preparations


def test_so_is_what_goes_wrong_when_they_are_taken() -> None:
    class Ready(NoConstraints):
        def prepare(self, requests: object) -> Future[None]:
            done: Future[None] = Future()
            done.set_result(None)
            return done

    def take() -> None:
        raise KeyError("a")

    verdict = Preparations(Ready()).begin([request("a")], take, lambda ids: None)
    with pytest.raises(EngineError, match="KeyError"):
        verdict.result(timeout=0)


def test_of_several_futures_one_that_is_cancelled_is_an_error_of_all() -> None:
    one: Future[None] = Future()
    other: Future[None] = Future()
    whole = all_of([one, other])
    other.cancel()
    assert not whole.done()
    one.set_result(None)
    with pytest.raises(CancelledError):
        whole.result(timeout=0)


def test_of_several_futures_the_first_error_counts() -> None:
    one: Future[None] = Future()
    other: Future[None] = Future()
    whole = all_of([one, other])
    other.set_exception(RequestError("other"))
    one.set_exception(RequestError("one"))
    with pytest.raises(RequestError, match="one"):
        whole.result(timeout=0)
    with pytest.raises(InvalidStateError):
        whole.set_result(None)


class Never(NoConstraints):
    def prepare(self, requests: object) -> Future[None]:
        return Future()


def test_one_tenants_unread_grammars_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.engine.preparations.MAX_WAITING_OF_ONE", 2)
    preparations = Preparations(Never())

    def begin(name: str, tenant: Tenant) -> Future[None]:
        asked = dataclasses.replace(request(name), tenant=tenant)
        return preparations.begin([asked], lambda: None, lambda ids: None)

    greedy = [begin(f"greedy-{number}", Tenant("greedy")) for number in range(3)]
    assert [one.done() for one in greedy] == [False, False, True]
    with pytest.raises(OverloadError, match="2 requests of the same API key wait for their grammars"):
        greedy[2].result(timeout=0)
    assert not begin("modest", Tenant("modest")).done()
    assert not any(begin(f"nobody-{number}", ANYBODY).done() for number in range(3))  # who may be many
