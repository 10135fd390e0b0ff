"""B01, B02, B05: blocks, steps and slots that requests compete for."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from noria.core.outputs import FinishReason
from noria.engine.messages import GenerateRequest, RequestRecord
from noria.sampling.params import SamplingParams
from support_models import write_checkpoint
from support_processes import until
from support_serving import Serving, serving
from support_steering import steered

LONGEST = 8192


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    write_checkpoint(directory, "llama", max_position_embeddings=LONGEST)
    return directory


def _prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(10, 200) for _ in range(length)]


def _body(prompt: Sequence[int], max_tokens: int, **fields: object) -> dict[str, object]:
    asked = {"model": "test", "prompt": list(prompt), "max_tokens": max_tokens}
    return {**asked, "ignore_eos": True, "temperature": 0, "return_token_ids": True, **fields}


async def _ask(url: str, bodies: Sequence[dict[str, object]]) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        return await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))


def _tokens(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["choices"][0]["token_ids"]
    return ids


def _records(running: Serving) -> list[RequestRecord]:
    running.check_clean()
    return running.engine.recorder.requests()


def test_with_too_few_blocks_for_all_every_request_ends_with_its_solo_text_and_few_preemptions(
    model: Path,
) -> None:
    asked = [_body(_prompt(seed, 100), 300) for seed in range(8)]
    with serving(model=model, block_size=16, num_gpu_blocks_override=40) as running:
        solo = [_tokens(asyncio.run(_ask(running.url, [body]))[0]) for body in asked]
        together = [_tokens(answer) for answer in asyncio.run(_ask(running.url, asked))]
        assert together == solo
        assert max(record.num_preemptions for record in _records(running)) <= 6
        # A step that computes always makes somebody a token.
        assert all(
            step.num_sampled_tokens or step.num_prompt_tokens for step in running.engine.recorder.steps()
        )


def test_what_can_never_fit_the_blocks_is_refused_on_arrival(model: Path) -> None:
    with serving(model=model, block_size=16, num_gpu_blocks_override=40) as running:
        (answer,) = asyncio.run(_ask(running.url, [_body(_prompt(1, 641), 1)]))
        assert answer.status_code == 400
        assert "640" in answer.json()["error"]["message"]


def test_short_prompts_do_not_wait_for_a_long_one_and_it_takes_less_than_twice_its_time(model: Path) -> None:
    budget = 256
    alone = -(-6000 // budget)

    def ask(seed: int, length: int) -> None:
        _tokens(asyncio.run(_ask(running.url, [_body(_prompt(seed, length), 1)]))[0])

    with (
        serving(model=model, max_num_batched_tokens=budget, num_gpu_blocks_override=1024) as running,
        steered(running.engine, 0.02) as steering,
        ThreadPoolExecutor(2) as askers,
    ):
        with steering.held():  # until a short one is there beside the long one
            long = askers.submit(ask, 0, 6000)
            until(lambda: len(running.engine._intake._entries) == 1)
            short = askers.submit(ask, 1, 20)
            until(lambda: len(running.engine._intake._entries) == 2)
        short.result()
        seed = 2
        while not long.done():
            ask(seed, 20)
            seed += 1
        long.result()
        steps = {record.request_id: _steps_until_first_token(running, record) for record in _records(running)}
        lengths = {record.request_id: record.num_prompt_tokens for record in _records(running)}
    assert [count for name, count in steps.items() if lengths[name] == 6000] <= [2 * alone]
    assert max(count for name, count in steps.items() if lengths[name] == 20) <= 4


def _steps_until_first_token(running: Serving, record: RequestRecord) -> int:
    assert record.first_token_s is not None
    starts = [step.start_s for step in running.engine.recorder.steps()]
    return sum(record.accepted_s <= start_s < record.first_token_s for start_s in starts)


def test_after_hundreds_of_aborted_requests_the_pool_is_whole_and_nothing_is_remembered(model: Path) -> None:
    draw = random.Random(7)
    shared = _prompt(0, 40)
    with serving(model=model, block_size=16, num_gpu_blocks_override=96) as running:
        engine = running.engine
        for number in range(300):
            prompt = shared + _prompt(number, 8) if number % 2 else _prompt(number, draw.randrange(1, 60))
            params = SamplingParams(max_tokens=draw.randrange(1, 80), n=draw.randrange(1, 5), ignore_eos=True)
            names = [f"r{number}-{i}" for i in range(params.n)]
            sequences = [GenerateRequest(name, tuple(prompt), params, 0) for name in names]
            heard = _Counter(draw.randrange(0, 12), names)
            engine.submit(sequences, heard).result()
            if number % 3:
                heard.wait()
            engine.cancel(names)  # before its first step, or somewhere in its life
            if number % 5 == 0:
                engine.cancel(names, FinishReason.STOP)
        _records(running)
        engine._intake.check()
        assert not engine._intake._entries
        assert engine._sinks.open_requests() == []
        pool = engine._loop.scheduler.kv.pool
        assert pool.num_free == pool.num_blocks


class _Counter:
    """A sink that can be waited on until some deltas have come, or all its requests have ended."""

    def __init__(self, count: int, names: Sequence[str]) -> None:
        self._left = count
        self._open = set(names)
        self._changed = threading.Condition()

    def __call__(self, deltas: Sequence) -> None:
        with self._changed:
            self._left -= len(deltas)
            self._open -= {delta.request_id for delta in deltas if delta.finish is not None}
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left <= 0 or not self._open, timeout=60)


def test_clients_that_vanish_leave_no_blocks_behind(model: Path) -> None:
    draw = random.Random(9)

    async def vanish(client: httpx.AsyncClient, number: int) -> None:
        body = _body(_prompt(number % 7, 30), 60, n=1 + number % 4, stream=number % 3 != 0, temperature=1)
        try:
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                left = draw.randrange(0, 10)
                async for _ in answer.aiter_lines():
                    left -= 1
                    if left < 0:
                        return
        except httpx.ReadTimeout:
            pass  # it left before there was an answer

    async def all_of_them(url: str) -> None:
        timeout = httpx.Timeout(60, read=0.5, pool=None)
        limits = httpx.Limits(max_connections=16)
        async with httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits) as client:
            await asyncio.gather(*(vanish(client, number) for number in range(120)))

    with serving(model=model, block_size=16, num_gpu_blocks_override=96, max_num_seqs=8) as running:
        asyncio.run(all_of_them(running.url))
        # The server may yet have to notice that some of them left.
        load = f"{running.url}/load"
        until(lambda: httpx.get(load, timeout=60).json()["server_load"] == 0)
        running.check_clean()
        running.engine._intake.check()
        assert not running.engine._intake._entries
        assert len(_tokens(asyncio.run(_ask(running.url, [_body(_prompt(1, 30), 5)]))[0])) == 5
