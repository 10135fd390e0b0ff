"""A12: work went on after the client had left, or only leaving streams were noticed, or leaving crashed the server.

The kind: cancelling works at every point of a request's life, and gives back all that the request held.
"""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord, StepRecord
from support_http import PATHS, Api, asked
from support_models import cached_checkpoint
from support_processes import until
from support_serving import serving
from support_steering import steered

LONG = {"max_tokens": 4000, "ignore_eos": True}
STEP_S = 0.01  # at least: none of them comes to its end by itself
NUM_LEAVINGS = 200


class Watched:
    """What the engine's records tell, for a test to wait for."""

    def __init__(self) -> None:
        self.ended: list[RequestRecord] = []
        self.steps: list[StepRecord] = []
        self._changed = threading.Condition()

    def on_step(self, record: StepRecord) -> None:
        with self._changed:
            self.steps.append(record)
            self._changed.notify_all()

    def on_request(self, record: RequestRecord) -> None:
        with self._changed:
            self.ended.append(record)
            self._changed.notify_all()

    def wait_for(self, condition: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=60)


@pytest.fixture(scope="module")
def one_at_a_time() -> Iterator[Api]:
    """A server that runs one request, and reads prompts in small chunks."""
    model = cached_checkpoint("llama", max_position_embeddings=8192)
    settings = {"max_model_len": 8192, "num_gpu_blocks_override": 1024, "enable_prefix_caching": False}
    with (
        serving(model=model, max_num_seqs=1, max_num_batched_tokens=16, **settings) as running,
        steered(running.engine, STEP_S),
    ):
        yield Api(running)


@pytest.fixture
def watched(one_at_a_time: Api) -> Watched:
    watched = Watched()
    one_at_a_time.serving.engine.recorder.add_listener(watched)
    return watched


class Leaver:
    """A request on a connection of its own, which ends when the test says so."""

    def __init__(self, api: Api, endpoint: str, prompt: Any, **fields: Any) -> None:
        body = json.dumps(asked(endpoint, prompt, **fields)).encode()
        head = f"POST {PATHS[endpoint]} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        port = int(api.serving.url.rpartition(":")[2])
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def leave(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("state", ["decoding", "reading its prompt", "queued"])
def test_a_client_that_leaves_ends_its_work_within_a_step_or_two(
    one_at_a_time: Api, watched: Watched, state: str, stream: bool
) -> None:
    api = one_at_a_time
    stats = api.serving.engine.stats
    prompt = [5] * (4000 if state == "reading its prompt" else 8)
    runner = None
    if state == "queued":
        runner = Leaver(api, "text", [7] * 8, **LONG)
        watched.wait_for(lambda: watched.steps)
    aborted = api.metric("vllm:request_success_total", 'finished_reason="abort"')
    leaver = Leaver(api, "text", prompt, stream=stream, **LONG)
    if state == "queued":
        watched.wait_for(lambda: stats().num_waiting == 1)
    else:
        reads = state == "reading its prompt"
        watched.wait_for(lambda: any((step.num_decode_seqs == 0) == reads for step in watched.steps))
    leaver.leave()
    watched.wait_for(lambda: watched.ended)
    [record] = watched.ended
    assert record.finish is FinishReason.ABORT
    assert record.num_prompt_tokens == len(prompt)
    if runner is not None:
        assert record.first_scheduled_s is None
        runner.leave()
        watched.wait_for(lambda: len(watched.ended) == 2)
    api.serving.check_clean()
    expected = aborted + (1 if runner is None else 2)
    assert api.metric("vllm:request_success_total", 'finished_reason="abort"') == expected


def test_after_many_leavings_at_random_moments_everything_is_as_at_first(tiny: Api) -> None:
    fresh = tiny.ask("text", "the wheel", max_tokens=8, ignore_eos=True)["choices"]
    source = random.Random(12)
    watched = Watched()
    tiny.serving.engine.recorder.add_listener(watched)
    num_sequences = 0
    leavers: list[Leaver] = []
    with steered(tiny.serving.engine, STEP_S):
        for _ in range(NUM_LEAVINGS):
            n = source.randint(1, 3)
            endpoint = source.choice(("text", "chat"))
            prompt = "turn " * source.randint(1, 60)
            leavers.append(Leaver(tiny, endpoint, prompt, n=n, stream=source.random() < 0.5, **LONG))
            num_sequences += n
            if source.random() < 0.7:  # some leave at once, some stay for a while
                leavers.pop(source.randrange(len(leavers))).leave()
        for leaver in leavers:
            leaver.leave()
        # Those that left before they were submitted never were.
        until(lambda: tiny.client.get("/load").json()["server_load"] == 0)
        tiny.serving.check_clean()
    assert len(watched.ended) <= num_sequences
    assert {record.finish for record in watched.ended} == {FinishReason.ABORT}
    assert tiny.ask("text", "the wheel", max_tokens=8, ignore_eos=True)["choices"] == fresh
