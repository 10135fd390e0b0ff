from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from benchmarks.decoy import decoy
from benchmarks.flights import Flight, Outcome, message_of, shots
from benchmarks.overload import Plan, Point, point_of, quantile, verdict
from benchmarks.processors import Clocks, Shares, shares_of

SHARES = Shares(client=0.1, engine=0.7, api=0.1, left_s=20.0, client_ms=0.3)


def test_arrivals_have_the_asked_rate_and_are_the_same_for_the_same_seed() -> None:
    first = shots(80, 50.0, 40.0, seed=3)
    assert len(first) == pytest.approx(2000, rel=0.1)
    assert all(0 < shot.at_s < 40 for shot in first)
    assert first == shots(80, 50.0, 40.0, seed=3)
    assert len({shot.prompt for shot in first}) == len(first)


def test_goodput_counts_whole_answers_within_their_deadline_and_nothing_else() -> None:
    plan = Plan((2.0,), seconds=10.0, seed=1, max_num_seqs=8, deadline_s=4.0)
    outcomes = [Outcome(200, 1.0), Outcome(200, 3.9), Outcome(200, 4.2), Outcome(504, 4.0), Outcome(0, 4.5)]
    outcomes += [Outcome(503, 0.01), Outcome(503, 0.03)]
    point = point_of(2.0, outcomes, plan, SHARES)
    assert (point.num_good, point.num_refused, point.num_late, point.num_sent) == (2, 2, 3, 7)
    assert point.goodput == 0.2
    assert (point.refusal_p50_s, point.refusal_p99_s, point.answer_p99_s) == (0.03, 0.03, 3.9)


def test_quantiles_are_values_that_occurred() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([], 0.5) == 0.0


class _Server(asyncio.Protocol):
    """Answers what has come; without an answer it keeps silent."""

    def __init__(self, answer: bytes, taken: list[bytes]) -> None:
        self._answer = answer
        self._taken = taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._taken.append(data)
        if self._answer:
            self._transport.write(self._answer)
            self._transport.close()


def outcome_of(answer: bytes, patience_s: float, taken: list[bytes]) -> Outcome:
    shot = shots(80, 1.0, 40.0, 1)[0]

    async def fly() -> Outcome:
        make: Callable[[], _Server] = lambda: _Server(answer, taken)  # noqa: E731
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        async with server:
            flight = Flight(server.sockets[0].getsockname()[1], message_of(shot, 2.5))
            flight.begin(patience_s)
            return await flight.outcome

    return asyncio.run(fly())


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_is_whole_when_the_server_has_closed(status: int) -> None:
    taken: list[bytes] = []
    assert outcome_of(b"HTTP/1.1 %d X\r\n\r\n" % status, 20.0, taken).status == status
    assert b"X-Request-Timeout: 2.5\r\n" in b"".join(taken)


def test_whoever_gets_no_answer_in_time_leaves_without_one() -> None:
    assert outcome_of(b"", 0.05, []).status == 0


def test_a_decoy_answers_whatever_it_is_sent() -> None:
    async def fly(port: int) -> Outcome:
        flight = Flight(port, message_of(shots(port, 1.0, 40.0, 1)[0], 2.5))
        flight.begin(20.0)
        return await flight.outcome

    with decoy() as port:
        assert [asyncio.run(fly(port)).status for _ in range(2)] == [503, 503]


def point(load: float, goodput: float, left_s: float) -> Point:
    """Of ten seconds."""
    num_good = round(10 * goodput)
    return Point(load, load, goodput, 0, num_good, 0, 0, 0.0, 0.0, 0.0, replace(SHARES, left_s=left_s))


def test_what_overload_leaves_of_goodput_is_told_beside_what_the_load_alone_leaves() -> None:
    points = [point(1.0, 10.0, 20.0), point(1.5, 9.5, 20.0), point(10.0, 6.0, 15.0)]
    assert verdict(points, [point(10.0, 8.0, 15.0)]) == [
        "at 1.5x goodput keeps 95 % of its peak; for each second of a processor that the client left, 95 %",
        "at 10x goodput keeps 60 % of its peak, 75 % of what it is when the decoy gets the surplus; "
        "for each second of a processor that the client left, 80 %",
    ]


def test_what_is_left_of_the_processors_is_what_the_client_did_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    spent = Clocks(15.0, 4.0, 18.0, 3.0).since(Clocks(5.0, 2.0, 3.0, 1.0))
    shares = shares_of(spent, num_sent=1000)
    assert (shares.client, shares.engine, shares.api) == (0.1, 0.75, 0.1)
    assert (shares.left_s, shares.client_ms) == (18.0, 2.0)
