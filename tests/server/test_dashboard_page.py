"""The dashboard in a browser: a real page, a real server, an engine that makes its tokens up."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from noria.server.dashboard import routes
from support_browser import WatchedPage, browser, chromium_path
from support_held import held
from support_paced import VOCAB_SIZE, paced_engine
from support_server import Server, served_model, serving

SIZES = {"laptop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
MODEL = {"vocab_size": VOCAB_SIZE, "max_model_len": 1024}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def busy() -> Iterator[Server]:
    with serving(paced_engine(num_blocks=256), model=served_model(**MODEL)) as server:
        yield server


@pytest.mark.parametrize(
    ("is_ci", "outcome"), [(True, pytest.fail.Exception), (False, pytest.skip.Exception)]
)
def test_a_missing_browser_fails_in_ci_and_is_excused_elsewhere(
    monkeypatch: pytest.MonkeyPatch, is_ci: bool, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CI", "true" if is_ci else "")
    with pytest.raises(outcome, match="apt-get install chromium"):
        chromium_path()


def ask(page: WatchedPage, text: str, max_tokens: int = 24) -> None:
    page.page.fill("#chat-max", str(max_tokens))
    page.page.fill("#chat-text", text)
    page.page.click("#chat-send")


def send_beside(server: Server, **fields: Any) -> threading.Thread:
    """A request from elsewhere, while the test goes on."""
    thread = threading.Thread(target=lambda: server.complete(ignore_eos=True, **fields))
    thread.start()
    return thread


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_a_chat_is_answered_and_shown_step_by_step(
    chromium: Any, busy: Server, size: str, scheme: str
) -> None:
    with WatchedPage(chromium, viewport=SIZES[size], color_scheme=scheme) as page:
        page.open(busy.url)
        assert page.text("#model") == "wheel"
        assert page.text("#empty").startswith("No requests yet")
        ask(page, "turn")
        page.wait_for_kinds("prefill", "decode")
        page.wait_until("document.querySelector('#chat-send').offsetParent !== null")  # the answer has ended
        answer = page.text(".turn.assistant")
        assert "24 tokens" in answer
        assert "first token" in answer
        assert "tok/s" in answer
        page.wait_until("document.getElementById('running').textContent === '0'")
        shown = page.data("timeline")
        assert (shown["sequences"], shown["columns"]) == ("1", "24")
        page.wait_for_plots()
        assert page.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.complaints == []
        assert {url.split("/")[2] for url in page.urls if not url.startswith("data:")} == {
            f"127.0.0.1:{busy.port}"
        }


def test_cached_prefixes_and_the_blocks_behind_them_are_shown(chromium: Any, busy: Server) -> None:
    with WatchedPage(chromium) as page:
        page.open(busy.url)
        for _ in range(2):
            busy.complete(prompt=list(range(5, 26)), max_tokens=3)
        page.wait_for_kinds("cached", "prefill", "decode")
        stats = busy.engine.stats()
        page.wait_until("document.getElementById('blocks').dataset.used === '0'")
        shown = page.data("blocks")
        assert shown["cached"] == str(stats.num_blocks_cached)
        assert shown["free"] == str(stats.num_blocks - stats.num_blocks_cached)
        assert page.complaints == []


def test_preemption_and_waiting_are_shown(chromium: Any) -> None:
    engine = paced_engine(num_blocks=12, max_num_seqs=4, max_model_len=40)
    with (
        serving(engine, model=served_model(vocab_size=VOCAB_SIZE, max_model_len=40)) as server,
        WatchedPage(chromium) as page,
    ):
        page.open(server.url)
        sending = send_beside(server, prompt=[[i, *range(7)] for i in range(8)], max_tokens=20)
        page.wait_for_kinds("preempted", "waiting", "prefill", "decode")
        sending.join()
        assert sum(record.num_preemptions for record in engine.recorder.requests()) > 0
        assert page.complaints == []


def test_eight_texts_at_once_share_the_batch(chromium: Any, busy: Server) -> None:
    with WatchedPage(chromium) as page, held(busy.engine, (1, lambda asked: asked.num_submitted >= 4)):
        page.open(busy.url)
        page.page.fill("#chat-max", "60")
        page.page.click("#chat-many")
        page.wait_until("document.getElementById('timeline').dataset.sequences === '8'")
        page.wait_until("document.querySelector('#chat-send').offsetParent !== null")
        assert page.page.locator(".turn.assistant:has-text('tok/s')").count() == 8
        assert max(step.num_running for step in busy.engine.recorder.steps()) >= 4


def test_stop_ends_the_answer_in_the_engine_too(chromium: Any, busy: Server) -> None:
    with WatchedPage(chromium) as page, held(busy.engine, (5, lambda asked: asked.num_cancelled >= 1)):
        page.open(busy.url)
        ask(page, "turn", max_tokens=900)
        page.wait_for_kinds("decode")
        page.page.click("#chat-stop")
        page.page.wait_for_selector(".turn.assistant small:has-text('stopped')")
        page.wait_until("document.getElementById('running').textContent === '0'")
        (record,) = busy.engine.recorder.requests()
        assert record.finish.value == "abort"


def test_a_refused_chat_says_why(chromium: Any, busy: Server) -> None:
    with WatchedPage(chromium) as page:
        page.open(busy.url)
        page.page.fill("#chat-temperature", "-1")
        page.page.eval_on_selector("#chat-form", "form => form.noValidate = true")
        ask(page, "turn")
        page.page.wait_for_selector(".turn.assistant.failed:has-text('temperature')")


def test_a_key_is_asked_for_and_kept_in_memory_alone(chromium: Any) -> None:
    with (
        serving(paced_engine(num_blocks=256), model=served_model(**MODEL), api_key=("right",)) as server,
        WatchedPage(chromium) as page,
    ):
        page.open(server.url, state="key")
        page.page.fill("#key", "wrong")
        page.page.click("#key-form button")
        page.page.wait_for_selector("#key-error:has-text('not one of')")
        page.page.fill("#key", "right")
        page.page.click("#key-form button")
        page.wait_for_state("live")
        assert not page.page.is_visible("#key-form")
        ask(page, "turn")
        page.page.wait_for_selector(".turn.assistant small:has-text('24 tokens')")
        kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        assert page.page.evaluate(kept) == f'[{{}},{{}},"","{server.url}/"]'


def test_the_page_comes_back_with_the_server(chromium: Any, busy: Server) -> None:
    with WatchedPage(chromium) as page:
        page.open(busy.url)
        gate = busy.app.state.switchboard.gate
        gate.drain()
        page.wait_for_state("lost")
        gate._is_draining = False
        page.wait_for_state("live")
        ask(page, "turn")
        page.wait_for_kinds("decode")


def test_a_page_that_nobody_sees_reads_nothing_and_one_seen_again_goes_on(
    chromium: Any, busy: Server
) -> None:
    look = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    look += "document.dispatchEvent(new Event('visibilitychange'))"
    with WatchedPage(chromium) as page:
        page.open(busy.url)
        with page.page.expect_event(
            "requestfailed", lambda request: request.url.endswith("/dashboard/events")
        ):
            page.page.evaluate(look % "true")
        busy.complete(prompt=[5, 6], max_tokens=3)
        with page.page.expect_request("**/dashboard/events"):
            page.page.evaluate(look % "false")
        page.wait_for_kinds("decode")  # of what happened meanwhile


def test_without_plotly_the_page_says_what_to_install_and_draws_the_batch(
    chromium: Any, busy: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "plotly", lambda: None)
    with WatchedPage(chromium) as page:
        page.open(busy.url)
        page.page.wait_for_selector("#plots-missing:has-text(\"pip install 'noria[dashboard]'\")")
        ask(page, "turn")
        page.wait_for_kinds("decode")
        assert not page.page.is_visible("#plots")
        assert page.complaints == []
        assert not any("plotly" in url for url in page.urls)


def test_a_row_pointed_at_says_what_it_is_and_marks_its_blocks(chromium: Any, busy: Server) -> None:
    with WatchedPage(chromium) as page, held(busy.engine, (30, lambda asked: asked.num_cancelled >= 1)):
        page.open(busy.url)
        ask(page, "turn", max_tokens=200)
        page.wait_until("document.getElementById('timeline').dataset.columns === '30'")
        page.page.hover("#timeline", position={"x": 42, "y": 8})
        page.page.wait_for_selector("#tip:has-text('sequence #1')")
        page.page.click("#chat-stop")


def test_a_big_batch_is_cut_to_what_a_page_holds_and_says_so(chromium: Any) -> None:
    engine = paced_engine(num_blocks=4096, max_num_seqs=120)
    with (
        serving(engine, model=served_model(**MODEL)) as server,
        WatchedPage(chromium, viewport=SIZES["laptop"]) as page,
    ):
        page.open(server.url)
        sending = send_beside(server, prompt=[[5, 6]] * 100, max_tokens=60)
        page.page.wait_for_selector("#batch-more:has-text('12 more rows are not shown')")
        assert page.page.evaluate(
            "document.getElementById('timeline').clientHeight < 0.46 * window.innerHeight"
        )
        sending.join()
        assert page.complaints == []
