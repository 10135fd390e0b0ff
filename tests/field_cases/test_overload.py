"""I01, I02: more work than the server can do, and work that comes too late."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord
from support_models import EOS_TOKEN_ID, write_checkpoint
from support_serving import Serving, serving
from support_steering import Steering, steered

LONGEST = 8192
STEP_S = 0.01  # a step at least, so that LONGEST tokens take more than a minute
TIMEOUT_S = 1000.0  # which pass when a test puts the engine's clock forward
PATH = "/v1/completions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    write_checkpoint(directory, "llama", max_position_embeddings=LONGEST)
    return directory


def _body(max_tokens: int, **fields: object) -> dict[str, Any]:
    asked = {"model": "test", "prompt": [5, 6, 7, 8], "max_tokens": max_tokens, "ignore_eos": True}
    return {**asked, "temperature": 0, "return_token_ids": True, **fields}


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None))


@asynccontextmanager
async def _busy(client: httpx.AsyncClient, count: int, **fields: object) -> AsyncIterator[None]:
    """While the block lasts, requests run that would go on for very long."""
    started = asyncio.Semaphore(0)

    async def run() -> None:
        async with client.stream("POST", PATH, json=_body(LONGEST - 10, stream=True, **fields)) as answer:
            async for line in answer.aiter_lines():
                if line:
                    started.release()

    tasks = [asyncio.ensure_future(run()) for _ in range(count)]
    for _ in range(20 * count):  # the engine has seen how long its steps take
        await asyncio.wait_for(started.acquire(), 60)
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(condition: Callable[[], bool]) -> None:
    async def turn() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(turn(), 60)


def _records(running: Serving, max_tokens: int) -> list[RequestRecord]:
    running.check_clean()
    return [record for record in running.engine.recorder.requests() if record.max_tokens == max_tokens]


def test_what_the_queue_does_not_hold_is_refused_at_once_and_what_it_holds_is_served(model: Path) -> None:
    async def scenario(url: str) -> list[httpx.Response]:
        async with _client(url) as client:
            async with _busy(client, count=2):
                waiting = {asyncio.ensure_future(client.post(PATH, json=_body(3))) for _ in range(40)}
                refused: list[httpx.Response] = []
                while len(refused) < 36:  # all of them while nothing ends
                    done, waiting = await asyncio.wait(
                        waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED
                    )
                    assert done, f"{len(refused)} refusals"
                    refused += [task.result() for task in done]
            served = await asyncio.gather(*waiting)
            assert [answer.status_code for answer in served] == [200] * 4
            return refused

    with (
        serving(model=model, max_num_seqs=2, max_num_queued_reqs=4) as running,
        steered(running.engine, STEP_S),
    ):
        refused = asyncio.run(scenario(running.url))
        assert [answer.status_code for answer in refused] == [503] * 36
        assert {answer.json()["error"]["type"] for answer in refused} == {"ServiceUnavailableError"}
        assert all(1 <= int(answer.headers["retry-after"]) <= 120 for answer in refused)
        counted = 'vllm:admission_rejections_total{model_name="test",reason="queued_requests"} 36.0'
        assert counted in httpx.get(f"{running.url}/metrics", timeout=60).text
        assert len(_records(running, max_tokens=3)) == 4  # no work was done for the others


def test_by_itself_the_queue_is_bounded_in_requests_and_prompt_tokens(model: Path) -> None:
    with serving(model=model) as running:
        queue = running.engine._config.queue
    assert queue.max_num_queued_reqs == 8 * 128
    assert queue.max_num_queued_tokens >= 4 * LONGEST


def test_prompts_beyond_the_queued_tokens_are_refused_though_few_requests_wait(model: Path) -> None:
    async def scenario(running: Serving) -> tuple[httpx.Response, list[int]]:
        async with _client(running.url) as client:
            async with _busy(client, count=1):
                fitting = [_body(3, prompt=[5 + i % 90 for i in range(length)]) for length in (4, 200)]
                waiting = [asyncio.ensure_future(client.post(PATH, json=body)) for body in fitting]
                await _until(lambda: running.engine._intake._num_queued == 2)
                refused = await client.post(PATH, json=_body(3, prompt=[5] * 900))
            served = await asyncio.gather(*waiting)
            return refused, [answer.status_code for answer in served]

    with (
        serving(model=model, max_num_seqs=1, max_num_queued_tokens=1000) as running,
        steered(running.engine, STEP_S),
    ):
        refused, served = asyncio.run(scenario(running))
    assert refused.status_code == 503
    assert "204 prompt tokens wait to be read; this server queues 1000" in refused.json()["error"]["message"]
    assert served == [200, 200]


# As long as the others, but nobody can know: it only never says the end token.
UNFORESEEN = {"ignore_eos": False, "logit_bias": {str(EOS_TOKEN_ID): -100}}


async def _ask_five(
    running: Serving, timeout_s: float, then: Callable[[], Any] = lambda: None, **busy: object
) -> list[httpx.Response]:
    """then: what is done once all five wait."""
    async with _client(running.url) as client, _busy(client, 1, **busy):
        body = _body(3, request_timeout=timeout_s)
        answers = asyncio.gather(*(client.post(PATH, json=body) for _ in range(5)))
        await _until(lambda: answers.done() or running.engine._intake._num_queued == 5)
        then()
        return await answers


def test_requests_whose_time_is_over_in_the_queue_are_told_so_and_cost_nothing(model: Path) -> None:
    with serving(model=model, max_num_seqs=1) as running, steered(running.engine, STEP_S) as steering:
        later = lambda: steering.put_forward(TIMEOUT_S)  # noqa: E731
        answers = asyncio.run(_ask_five(running, TIMEOUT_S, later, **UNFORESEEN))
        assert [answer.status_code for answer in answers] == [504] * 5
        assert all(answer.headers["x-should-retry"] == "false" for answer in answers)
        expired = _records(running, max_tokens=3)
        assert len(expired) == 5
        for record in expired:
            assert record.finish is FinishReason.TIMEOUT
            assert record.first_scheduled_s is None
            _check_ended_in_time(running, record)


def test_requests_that_are_foreseen_to_be_late_are_refused_at_once(model: Path) -> None:
    with serving(model=model, max_num_seqs=1) as running, steered(running.engine, STEP_S):
        answers = asyncio.run(_ask_five(running, LONGEST * STEP_S / 8))
        assert [answer.status_code for answer in answers] == [503] * 5
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
        assert _records(running, max_tokens=3) == []
        counted = 'vllm:admission_rejections_total{model_name="test",reason="deadline"} 5.0'
        assert counted in httpx.get(f"{running.url}/metrics", timeout=60).text


def _check_ended_in_time(running: Serving, record: RequestRecord) -> None:
    """It lasted as long as it had, and ended when the first step after that began."""
    # The server has taken off what passed before the engine saw it.
    assert record.finished_s - record.accepted_s > 0.9 * TIMEOUT_S
    starts = [step.start_s for step in running.engine.recorder.steps()]
    deadline_s = record.accepted_s + TIMEOUT_S
    assert sum(deadline_s < start_s < record.finished_s for start_s in starts) <= 1


def _ask_until_late(running: Serving, steering: Steering, body: dict[str, Any], steps: int) -> httpx.Response:
    """The answer to a request whose time is over after so many steps."""

    async def scenario() -> httpx.Response:
        async with _client(running.url) as client:
            asked = asyncio.ensure_future(client.post(PATH, json=body))
            await _until(lambda: asked.done() or running.engine.stats().step >= steps)
            steering.put_forward(TIMEOUT_S)
            return await asked

    return asyncio.run(scenario())


@pytest.mark.parametrize("stream", [True, False])
def test_a_running_request_whose_time_is_over_says_what_it_had_and_why_it_ends(
    model: Path, stream: bool
) -> None:
    with serving(model=model) as running, steered(running.engine, STEP_S) as steering:
        body = _body(LONGEST - 10, stream=stream, request_timeout=TIMEOUT_S)
        answer = _ask_until_late(running, steering, body, steps=60)
        if stream:
            *said, error, done, rest = answer.text.split("\n\n")
            assert (answer.status_code, done, rest) == (200, "data: [DONE]", "")
            text = "".join(json.loads(frame[6:])["choices"][0]["text"] for frame in said)
            code = json.loads(error[6:])["error"]["code"]
        else:
            assert answer.status_code == 504
            text, code = answer.json()["error"]["partial"][0], answer.json()["error"]["code"]
        assert (code, bool(text)) == (504, True)
        (record,) = _records(running, max_tokens=LONGEST - 10)
        assert record.finish is FinishReason.TIMEOUT
        assert 0 < record.num_output_tokens < LONGEST - 10
        _check_ended_in_time(running, record)


def test_a_prompt_whose_time_is_over_between_its_pieces_is_read_no_further(model: Path) -> None:
    settings = {"max_num_batched_tokens": 16, "enable_prefix_caching": False}
    with serving(model=model, **settings) as running, steered(running.engine, 10 * STEP_S) as steering:
        prompt = [5 + i % 90 for i in range(LONGEST - 10)]
        answer = _ask_until_late(
            running, steering, _body(5, prompt=prompt, request_timeout=TIMEOUT_S), steps=3
        )
        assert answer.status_code == 504
        assert "partial" not in answer.json()["error"]
        (record,) = _records(running, max_tokens=5)
        read = sum(step.num_prompt_tokens for step in running.engine.recorder.steps())
        assert (record.finish, record.num_output_tokens) == (FinishReason.TIMEOUT, 0)
        assert read < len(prompt)
