"""The load generator against a server whose behaviour is written down."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain, count, pairwise, repeat
from typing import Any

import pytest
import uvloop

from noria.bench.generator import Generator
from noria.bench.http_client import parse_origin
from noria.bench.http_target import open_http_target
from noria.bench.outcome import Outcome, Status
from noria.bench.pieces import Piece, Planned
from noria.bench.play import Play, followers_of, make_play
from noria.bench.run import Asked, News, RunResult, Stop, run
from noria.bench.workload import Workload
from noria.config.benching import LoadOptions, TargetOptions, WorkloadOptions
from noria.config.errors import ConfigError, RequestError
from support_scripted_server import Script, ScriptedServer, scripted


def measured(
    server: ScriptedServer, load: dict[str, Any], news: list[News] | None = None, **more: Any
) -> RunResult:
    """Of a whole run. more: settings of the workload and of the target."""
    names = TargetOptions.__dataclass_fields__
    target = TargetOptions(base_url=server.url, **{key: value for key, value in more.items() if key in names})
    given = {"prompt_tokens": "8-16", "output_tokens": "1-5", **more}
    workload = WorkloadOptions(**{key: value for key, value in given.items() if key not in names})

    async def measure() -> RunResult:
        opened = await open_http_target(target, None, workload.bench_seed)
        try:
            tell = (lambda _: None) if news is None else news.append
            return await run(opened, Asked(workload, LoadOptions(**load), target.answer_limit), tell, Stop())
        finally:
            opened.close()

    return uvloop.run(measure())


def played(server: ScriptedServer, play: Play, limit_s: float = 60.0) -> list[Outcome]:
    async def go() -> list[Outcome]:
        target = await open_http_target(TargetOptions(base_url=server.url), None, 0)
        try:
            return await Generator(target, play, limit_s).run()
        finally:
            target.close()

    return uvloop.run(go())


def requests(count: int, num_output: int = 2) -> tuple[Planned, ...]:
    return tuple(Planned(index, (Piece(f"p{index}", 4 + index),), num_output) for index in range(count))


def test_every_request_is_sent_with_the_planned_prompt_and_length() -> None:
    with scripted() as server:
        result = measured(server, {"rate": 400.0, "requests": 60})
    assert len(result.outcomes) == 60
    assert all(one.is_ok for one in result.outcomes)
    assert all(one.num_prompt == one.num_planned for one in result.outcomes)
    assert all(one.num_output == one.num_asked == sum(one.chunk_tokens) for one in result.outcomes)
    sent = server.bodies[1:]  # the first is the warm-up
    assert all(isinstance(body["prompt"][0], int) and body["ignore_eos"] and body["stream"] for body in sent)
    assert sorted(len(body["prompt"]) for body in sent) == sorted(one.num_prompt for one in result.outcomes)


def test_instants_are_in_order_and_arrivals_are_those_of_the_schedule() -> None:
    due = tuple((0.01 * index, index) for index in range(20))
    with scripted(Script(chunks=((0.005, 1), (0.005, 1)))) as server:
        outcomes = played(server, Play(requests(20), due, {}, False, None, None, 100.0))
    for one in outcomes:
        assert one.arrival_s == pytest.approx(due[one.index][0], abs=1e-6)
        assert one.sent_s >= one.arrival_s - 0.001
        assert one.sent_s < one.first_s <= one.last_s <= one.end_s
        assert one.ttft_s >= 0.005


def test_a_closed_loop_keeps_its_concurrency() -> None:
    scripts = chain([Script()], repeat(Script(gathers=3)))  # the first is the warm-up
    with scripted(lambda body: next(scripts)) as server:
        result = measured(server, {"max_concurrency": 3, "requests": 20})
    assert server.most_at_once == 3
    assert len(result.outcomes) == 20
    assert result.is_closed


def test_an_open_loop_with_a_limit_lets_requests_wait_and_counts_it() -> None:
    due = tuple((0.0, index) for index in range(4))
    with scripted(Script(chunks=((0.05, 1),))) as server:
        outcomes = played(server, Play(requests(4, 1), due, {}, False, 1, None, 1.0))
    waited = sorted(one.send_lag_s for one in outcomes)
    assert server.most_at_once == 1
    assert all(later - earlier >= 0.045 for earlier, later in pairwise(waited))
    assert all(one.ttft_slo_s >= one.ttft_s for one in outcomes)


def test_planning_conversations_looks_at_their_turns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: a look at all of them for each of them takes seconds where there are thousands."""

    class Counted(dict[int, int]):
        num_walks = 0

        def values(self) -> Any:
            Counted.num_walks += 1
            return super().values()

    monkeypatch.setattr("noria.bench.play.followers_of", lambda requests: Counted(followers_of(requests)))
    turns = tuple(replace(one, session=f"s{one.index // 3}", turn=one.index % 3) for one in requests(300))
    play = make_play(Workload("chats", turns), LoadOptions(rate=5.0), 0)
    assert [index for _, index in play.due] == list(range(0, 300, 3))
    assert len(play.followers) == 200
    assert Counted.num_walks == 1


def test_turns_come_one_after_the_other() -> None:
    with scripted() as server:
        result = measured(server, {"rate": 100.0, "requests": 30}, turns="3", pause=0.01)
    by_session: dict[str, list[Outcome]] = {}
    for one in sorted(result.outcomes, key=lambda one: one.arrival_s):
        by_session.setdefault(one.session or "", []).append(one)
    assert len(result.outcomes) == 30
    for turns in by_session.values():
        assert [one.turn for one in turns] == [0, 1, 2]
        assert all(after.arrival_s >= before.end_s for before, after in pairwise(turns))


def test_a_chat_is_as_long_as_planned_though_the_template_adds_to_it() -> None:
    def script(body: dict[str, Any]) -> Script:
        return Script(chunks=((0.0, 1),) * body["max_tokens"], overhead=9)

    with scripted(script) as server:
        result = measured(server, {"rate": 200.0, "requests": 10}, endpoint="chat", prompt_tokens="20-40")
    assert [one.num_prompt - (one.num_planned or 0) for one in result.outcomes] == [0] * 10


def test_later_turns_of_a_chat_hold_what_was_really_answered() -> None:
    with scripted() as server:
        measured(
            server, {"rate": 100.0, "requests": 2}, endpoint="chat", turns="2", pause=0, output_tokens="3"
        )
    messages = server.bodies[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == "t t t "


def test_a_server_without_a_tokenizer_gets_words() -> None:
    with scripted(has_tokenize=False) as server:
        result = measured(server, {"rate": 200.0, "requests": 5})
    assert all(isinstance(body["prompt"], str) for body in server.bodies)
    assert all(one.num_prompt == one.num_planned for one in result.outcomes)  # here a word is a token


def test_connections_are_used_again() -> None:
    with scripted() as server:
        measured(server, {"max_concurrency": 2, "requests": 40})
    assert server.num_connections <= 4


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        (Script(status=500), Status.ERROR, "HTTP 500"),
        (Script(status=429), Status.REJECTED, "HTTP 429"),
        (Script(chunks=((0.0, 1), (0.0, 1)), breaks_after=1), Status.ERROR, "connection was lost"),
        (Script(chunks=()), Status.ERROR, "no tokens"),
        (Script(chunks=((30.0, 1),)), Status.TIMEOUT, ""),
    ],
)
def test_every_way_to_fail_is_told(script: Script, status: Status, words: str) -> None:
    with scripted(script) as server:
        due = tuple((0.0, index) for index in range(3))
        limit_s = 0.3 if status is Status.TIMEOUT else 60.0
        outcomes = played(server, Play(requests(3), due, {}, False, None, None, 1.0), limit_s=limit_s)
    assert [one.status for one in outcomes] == [status] * 3
    assert all(words in one.error for one in outcomes)


def test_a_server_that_answers_nothing_is_said_before_the_load_begins() -> None:
    with (
        scripted(Script(status=500)) as server,
        pytest.raises(RequestError, match="first request failed: HTTP 500"),
    ):
        measured(server, {"rate": 1.0, "requests": 5})
    with pytest.raises(RequestError, match="does not list its models"):
        measured(replace(ScriptedServer(lambda body: Script()), port=1), {"rate": 1.0, "requests": 5})


def test_stopping_cuts_what_is_under_way_and_keeps_what_came() -> None:
    async def go(server: ScriptedServer) -> list[Outcome]:
        target = await open_http_target(TargetOptions(base_url=server.url), None, 0)
        due = tuple((0.0, index) for index in range(4))
        generator = Generator(target, Play(requests(4), due, {}, False, None, None, 1.0), 60.0)
        running = asyncio.ensure_future(generator.run())
        while len(generator.outcomes) < 2:
            await asyncio.sleep(0.005)
        generator.stop()
        outcomes = await running
        target.close()
        return outcomes

    def script(body: dict[str, Any]) -> Script:
        return Script(chunks=((0.0 if len(body["prompt"]) < 6 else 60.0, 1),))

    with scripted(script) as server:
        outcomes = uvloop.run(go(server))
    assert sorted(one.status.value for one in outcomes) == ["cut", "cut", "ok", "ok"]


def test_a_load_that_is_ended_is_looked_at_no_more() -> None:
    """What is cut tells of nothing: a verdict of before must stay."""
    looks: list[bool] = []

    async def go(server: ScriptedServer) -> None:
        target = await open_http_target(TargetOptions(base_url=server.url), None, 0)
        due = tuple((0.0, index) for index in range(2))
        play = Play(requests(2), due, {}, False, None, None, 1.0)
        generator = Generator(target, play, 60.0, on_look=lambda one: looks.append(one.is_stopped))
        running = asyncio.ensure_future(generator.run())
        while not looks:
            await asyncio.sleep(0.005)
        generator.stop()
        generator._look()
        await running
        target.close()

    with scripted(lambda body: Script(chunks=((60.0, 1),))) as server:
        uvloop.run(go(server))
    assert not any(looks)


def test_answers_that_were_cut_after_their_limit_count_as_bad() -> None:
    """A load that is ended in the middle is not judged by the quick ones alone."""

    numbers = count()

    def script(body: dict[str, Any]) -> Script:
        return Script(chunks=((0.0 if next(numbers) <= 20 else 600.0, 1),))  # number 0 does not count

    async def measure(server: ScriptedServer) -> RunResult:
        target = await open_http_target(TargetOptions(base_url=server.url), None, 0)
        load = LoadOptions(rate=500.0, requests=40, slo=("ttft:1",))
        workload = WorkloadOptions(prompt_tokens="4", output_tokens="1")
        stop = Stop()

        def tell(news: News) -> None:
            if news.num_sent == 40 and news.num_open == 20:
                stop()

        try:
            return await run(target, Asked(workload, load, 60.0), tell, stop)
        finally:
            target.close()

    with scripted(script) as server:
        result = uvloop.run(measure(server))
    cut = [one for one in result.outcomes if one.status is Status.CUT]
    assert len(cut) == 20
    assert result.certificate is not None
    assert result.certificate.num_requests == 40
    assert result.certificate.num_bad >= len(cut)


def test_a_certain_pass_ends_the_run_early() -> None:
    with scripted() as server:
        load = {"rate": 100.0, "requests": 900, "until": "certain", "slo": ("ttft:600000", "tpot:600000")}
        result = measured(server, load)
    assert result.certificate is not None
    assert result.certificate.verdict.value == "pass"
    assert 109 <= len(result.outcomes) < 900


def test_a_certain_failure_ends_the_run_before_slow_requests_do() -> None:
    """Requests that have missed their limit are bad, though nobody knows when they will end."""
    with scripted(lambda body: Script(chunks=((0.0 if body["max_tokens"] == 2 else 60.0, 1),))) as server:
        load = {"rate": 200.0, "requests": 2000, "until": "certain", "slo": ("ttft:50",)}
        result = measured(server, load, output_tokens="7")
    assert result.certificate is not None
    assert result.certificate.verdict.value == "fail"
    assert all(one.status is Status.CUT for one in result.outcomes)


def test_news_tells_how_far_it_is() -> None:
    news: list[News] = []
    with scripted(Script(chunks=((0.01, 1), (0.01, 1)))) as server:
        measured(server, {"rate": 40.0, "requests": 30}, news, output_tokens="2")
    assert news
    last = news[-1]
    assert last.num_planned == 30
    assert last.num_sent <= 30
    assert last.num_ok + last.num_open == last.num_sent
    assert last.ttft_p50_ms is not None
    assert last.ttft_p50_ms >= 10


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host:9/v1", ("host", 9, False, "")),
        ("host:9", ("host", 9, False, "")),
        ("https://host/api/v1/", ("host", 443, True, "/api")),
        ("http://[::1]:80", ("::1", 80, False, "")),
    ],
)
def test_addresses_are_taken_as_people_write_them(url: str, expected: tuple[object, ...]) -> None:
    origin = parse_origin(url)
    assert (origin.host, origin.port, origin.is_tls, origin.prefix) == expected


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        parse_origin(url)
