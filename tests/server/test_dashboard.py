"""The dashboard's routes and its feed, without a browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import noria.server.dashboard
from noria.config.extras import plotly
from noria.core.kv import CACHED, FREE, USED
from noria.core.outputs import FinishReason
from noria.core.plan import Work
from noria.engine.messages import EngineStats, RequestRecord, StepRecord
from noria.server.dashboard import events, routes
from noria.server.dashboard.assets import FILES, PLOTLY_PATH
from noria.server.dashboard.events import MAX_WATCHERS, Audience
from noria.server.dashboard.feed import MAX_ENDS, MAX_ITEMS, MAX_STEPS, Feed
from noria.server.dashboard.message import encode
from noria.server.gate import Gate
from support_server import FakeEngine, Server, serving

FOLDER = Path(noria.server.dashboard.__file__).parent
STATS = EngineStats(1, 0, 0, 8, 0, 0, True)

BROWSER = {"accept": "text/html,*/*;q=0.8"}


def step(number: int, *work: Work, blocks: tuple = (), **changes: Any) -> StepRecord:
    record = StepRecord(
        number,
        1.5,
        0.001,
        0.002,
        0.003,
        0.004,
        1.506,
        work,
        0,
        1,
        0,
        0.0,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        0,
        8,
        1,
        0,
        (),
        (),
    )
    return replace(record, changed_blocks=blocks, **changes)


def end(request_id: str, blocks: tuple = ()) -> RequestRecord:
    return RequestRecord(
        request_id, 1.0, 1.0, 2.0, 2.0, 3.0, 5, 7, 2, 0, 0, 9, 1, FinishReason.STOP, changed_blocks=blocks
    )


def told(news: Any, stats: EngineStats = STATS) -> dict[str, Any]:
    return json.loads(encode(news, stats, {"model": "wheel"}).removeprefix(b"data: "))


def test_news_are_what_followed_and_nothing_twice() -> None:
    feed = Feed()
    feed.on_step(step(0))
    first = feed.latest()
    feed.on_step(step(1))
    feed.on_request(end("a"))
    second = feed.since(first)
    assert [number for number, _ in second.steps] == [2]
    assert [number for number, _ in second.ends] == [3]
    assert second.blocks is None
    third = feed.since(second)
    assert (third.steps, third.ends, third.last) == ((), (), 3)


def test_every_block_is_known_even_of_steps_that_nobody_saw() -> None:
    feed = Feed()
    feed.on_step(step(0, blocks=((0, USED), (1, USED))))
    feed.on_step(step(1, blocks=((1, CACHED),)))
    feed.on_request(end("a", blocks=((0, FREE), (5, CACHED))))
    assert feed.latest().blocks == bytes([FREE, CACHED, FREE, FREE, FREE, CACHED, FREE, FREE])
    assert told(feed.latest())["blocks"] == [[0, 1], [1, 1], [0, 3], [1, 1], [0, 2]]


def test_who_misses_more_than_is_kept_gets_everything_anew() -> None:
    feed = Feed()
    feed.on_step(step(0))
    before = feed.latest()
    for i in range(MAX_STEPS + 1):
        feed.on_step(step(1 + i, blocks=((3, USED),)))
    news = feed.since(before)
    assert news.blocks is not None
    assert news.blocks[3] == USED
    assert [record.step for _, record in news.steps] == list(range(2, MAX_STEPS + 2))


def test_memory_and_messages_are_bounded_whatever_happens() -> None:
    feed = Feed()
    share = Work("a" * 50, 0, 512, tuple(range(100)), True)
    for i in range(3 * MAX_STEPS):
        feed.on_step(step(i, *[share] * 20))
        for _ in range(4):
            feed.on_request(end("a"))
    news = feed.latest()
    assert len(news.ends) == MAX_ENDS
    assert len(news.steps) == MAX_ITEMS // (20 * 101)
    assert len(encode(news, STATS, {})) < 200_000
    assert (len(feed._steps), len(feed._ends)) == (MAX_STEPS, MAX_ENDS)


def test_a_new_engine_begins_a_new_picture() -> None:
    feed = Feed()
    feed.on_step(step(7, blocks=((0, USED),)))
    before = feed.latest()
    feed.on_step(step(0, blocks=((1, USED),)))
    news = feed.since(before)
    assert news.blocks == bytes([FREE, USED, *[FREE] * 6])
    assert [record.step for _, record in news.steps] == [0]


def test_what_a_dead_engine_held_is_gone() -> None:
    feed = Feed()
    for i in range(2):
        feed.on_step(step(i, blocks=((i, USED),)))
    before = feed.latest()
    feed.heed(STATS)
    assert feed.since(before).blocks is None
    feed.heed(replace(STATS, is_alive=False))
    news = feed.since(before)
    assert (news.blocks, news.steps) == (bytes(8), ())
    feed.on_step(step(0, blocks=((5, USED),)))
    assert feed.latest().blocks == bytes([*[FREE] * 5, USED, FREE, FREE])


def test_a_message_names_each_request_once_and_gives_milliseconds() -> None:
    feed = Feed()
    feed.on_step(step(0))
    before = feed.latest()
    work = (Work("long-name-a", 0, 5, (0, 1), True), Work("long-name-b", 8, 1, (), True))
    feed.on_step(step(1, *work, arrived_ids=("long-name-a",), ttfts_s=(0.25,), blocks=((0, USED),)))
    feed.on_request(end("long-name-b"))
    message = told(feed.since(before))
    assert message["kind"] == "news"
    assert message["ids"] == ["long-name-a", "long-name-b"]
    (seen,) = message["steps"]
    assert seen["work"] == [[0, 0, 5, 1, [0, 1]], [1, 8, 1, 1, []]]
    assert (seen["arrived"], seen["ttfts"], seen["at"], seen["ms"]) == ([0], [250.0], 1500.0, [1, 2, 3, 4])
    assert seen["blocks"] == [[0, USED]]
    (ended,) = message["ends"]
    assert (ended["id"], ended["finish"], ended["output"], ended["ms"]) == (1, "stop", 7, 2000.0)


def test_a_reader_that_is_slow_gets_what_it_missed_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_EVERY_S", 0)
    feed, gate = Feed(), Gate()
    audience = Audience(feed, lambda: STATS, gate, dict)
    written: list[dict[str, Any]] = []

    async def scenario() -> None:
        async def write(content: bytes) -> None:
            written.append(json.loads(content.removeprefix(b"data: ")))
            assert audience.num_watchers == 1
            if len(written) == 2:
                gate.drain()
            for i in range(50):  # while it writes
                feed.on_step(step(50 * len(written) + i))

        await asyncio.wait_for(audience.watch(write), 20)

    asyncio.run(scenario())
    assert [(message["kind"], len(message["steps"])) for message in written] == [
        ("snapshot", 0),
        ("snapshot", 50),
    ]
    assert audience.num_watchers == 0


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(FakeEngine()) as running:
        yield running


def read_events(response: httpx.Response, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in response.iter_lines():
        if line.startswith("data: "):
            found.append(json.loads(line[6:]))
        if len(found) == count:
            break
    return found


def test_events_begin_with_a_snapshot_and_go_on_with_news(server: Server) -> None:
    recorder = server.engine.recorder
    recorder.record_step(step(0, blocks=((0, USED),)))
    with server.client.stream("GET", "/dashboard/events") as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        (snapshot,) = read_events(response, 1)
    assert snapshot["kind"] == "snapshot"
    assert snapshot["about"]["model"] == "wheel"
    assert snapshot["about"]["plotly"] == plotly().version
    assert snapshot["stats"] == {
        "running": 0,
        "waiting": 0,
        "blocks": 8,
        "used": 0,
        "cached": 0,
        "alive": True,
    }
    assert [record["step"] for record in snapshot["steps"]] == [0]


def test_only_so_many_may_watch_and_one_who_leaves_makes_room(server: Server) -> None:
    open_streams = [server.client.stream("GET", "/dashboard/events") for _ in range(MAX_WATCHERS)]
    for stream in open_streams:
        assert stream.__enter__().status_code == 200
    refused = server.get("/dashboard/events")
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "5"
    assert f"{MAX_WATCHERS} dashboards" in refused.json()["error"]["message"]
    open_streams.pop().__exit__(None, None, None)
    status = 503
    while status == 503:
        with server.client.stream("GET", "/dashboard/events") as response:
            status = response.status_code
    assert status == 200
    for stream in open_streams:
        stream.__exit__(None, None, None)


def test_who_watches_does_not_hold_up_the_end_of_the_server(server: Server) -> None:
    with server.client.stream("GET", "/dashboard/events") as response:
        lines = response.iter_lines()
        next(lines)
        server.app.state.switchboard.gate.drain()
        for _ in lines:
            pass  # to the end of the stream, which comes by itself


def test_the_head_of_the_events_is_no_watcher(server: Server) -> None:
    for _ in range(MAX_WATCHERS + 1):
        head = server.client.head("/dashboard/events")
        assert head.status_code == 200
        assert head.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_watching_is_no_slow_request_in_the_metrics(server: Server) -> None:
    with server.client.stream("GET", "/dashboard/events") as response:
        read_events(response, 1)
    assert "/dashboard" not in server.get("/metrics").text


@pytest.mark.parametrize("path", FILES)
def test_the_pages_files_are_served_with_a_policy_and_not_sent_twice(server: Server, path: str) -> None:
    answer = server.get(path, headers=BROWSER)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "script-src" not in policy  # so scripts come from here alone, and none is written into the page
    assert answer.headers["cache-control"] == "no-cache"
    again = server.get(path, headers={**BROWSER, "if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert server.client.head(path).status_code == 200


def test_no_file_of_the_page_names_an_address_or_holds_a_script_or_style() -> None:
    for path, name in FILES.items():
        text = (FOLDER / name).read_text()
        addresses = set(
            re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", re.sub(r"^\s*// .*$", "", text, flags=re.M))
        )
        assert addresses <= {"http://www.w3.org/2000/svg"}, path
    page = (FOLDER / "page.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page)


def test_everything_the_page_asks_for_is_served(server: Server) -> None:
    page = (FOLDER / "page.html").read_text()
    scripts = [name for name in FILES.values() if name.endswith(".js")]
    named = set(re.findall(r'(?:src|href)="([^"]+)"', page))
    named |= {
        f"dashboard/{name}"
        for text in scripts
        for name in re.findall(r'from "\./([^"]+)"', (FOLDER / text).read_text())
    }
    assert {f"/{name}" for name in named} | {"/"} == set(FILES)


def test_plotly_comes_from_its_package_and_may_be_kept_for_ever(server: Server) -> None:
    answer = server.get(PLOTLY_PATH, params={"v": plotly().version})
    assert answer.status_code == 200
    assert answer.content == plotly().script.read_bytes()
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_without_plotly_its_script_is_not_found_and_the_answer_says_what_to_install(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "plotly", lambda: None)
    answer = server.get(PLOTLY_PATH)
    assert answer.status_code == 404
    assert "pip install 'noria[dashboard]'" in answer.json()["error"]["message"]


def test_with_keys_the_files_are_open_and_the_events_are_not() -> None:
    with serving(FakeEngine(), api_key=("right",)) as server:
        for path in (*FILES, PLOTLY_PATH):
            assert server.get(path).status_code == 200, path
        assert server.get("/dashboard/events").status_code == 401
        assert server.get("/dashboard/").status_code == 401
        headers = {"authorization": "Bearer right"}
        with server.client.stream("GET", "/dashboard/events", headers=headers) as response:
            assert response.status_code == 200
