"""The driver's closed loop, with a library in place of OpenVINO's that makes one token a step."""

from __future__ import annotations

import importlib
import io
import json
import sys
from dataclasses import asdict, dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from benchmarks.peers.workload import long_among_short


@dataclass
class Handle:
    num_left: int
    new: list[int] = field(default_factory=list)

    def can_read(self) -> bool:
        return bool(self.new)

    def read(self) -> dict[int, Any]:
        taken, self.new = self.new, []
        return {0: SimpleNamespace(generated_ids=taken)}

    def get_status(self) -> str:
        return "running" if self.num_left else "finished"


class Pipeline:
    def __init__(self, num_ignored: int = 0) -> None:
        self.handles: list[Handle] = []
        self.most_at_once = 0
        self.num_ignored = num_ignored

    def get_tokenizer(self) -> Any:
        def encode(text: str) -> Any:
            return SimpleNamespace(input_ids=SimpleNamespace(shape=(1, len(text.split()))))

        return SimpleNamespace(encode=encode, decode=lambda ids: "t" * len(ids))

    def add_request(self, number: int, prompt: Any, wanted: Any) -> Handle:
        assert number == len(self.handles)
        assert (wanted.ignore_eos, wanted.do_sample, wanted.apply_chat_template) == (True, False, False)
        ignored = number < self.num_ignored
        self.handles.append(Handle(0 if ignored else wanted.max_new_tokens))
        return self.handles[-1]

    def has_non_finished_requests(self) -> bool:
        return any(handle.num_left for handle in self.handles) or self.num_ignored > 0

    def step(self) -> None:
        running = [handle for handle in self.handles if handle.num_left]
        self.most_at_once = max(self.most_at_once, len(running))
        for handle in running:
            handle.num_left -= 1
            handle.new.append(7)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    library = ModuleType("openvino_genai")
    library.GenerationConfig = SimpleNamespace  # type: ignore[attr-defined]
    library.GenerationStatus = SimpleNamespace(RUNNING="running")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino_genai", library)
    monkeypatch.delitem(sys.modules, "benchmarks.peers.openvino_driver", raising=False)
    return importlib.import_module("benchmarks.peers.openvino_driver")


def group(lengths: list[int], concurrency: int, start_after_s: float = 0.0) -> dict[str, Any]:
    requests = [{"prompt": "w " * (i + 1), "max_tokens": length} for i, length in enumerate(lengths)]
    return {"requests": requests, "concurrency": concurrency, "start_after_s": start_after_s}


def test_a_closed_loop_keeps_its_concurrency_and_answers_every_request_in_order(driver: Any) -> None:
    pipeline, out = Pipeline(), io.StringIO()
    replies = driver.play(pipeline, [group([3, 1, 4, 1, 5], concurrency=2)], out)
    assert pipeline.most_at_once == 2
    assert [(r["group"], r["index"], r["num_prompt"], r["num_output"], r["text"]) for r in replies] == [
        (0, 0, 1, 3, "ttt"),
        (0, 1, 2, 1, "t"),
        (0, 2, 3, 4, "tttt"),
        (0, 3, 4, 1, "t"),
        (0, 4, 5, 5, "ttttt"),
    ]
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [{"done": 1}] * 5


def test_times_are_those_of_the_steps_that_brought_the_tokens(driver: Any) -> None:
    [first, second] = driver.play(Pipeline(), [group([2, 2], concurrency=1)], io.StringIO())
    moments = [first["sent_s"], *first["token_s"], second["sent_s"], *second["token_s"]]
    assert moments == sorted(moments)
    assert len(first["token_s"]) == 2


def test_a_later_group_begins_later_and_beside_the_first(driver: Any) -> None:
    groups = [group([1, 1], 2), group([1], 1, start_after_s=0.05)]
    replies = driver.play(Pipeline(), groups, io.StringIO())
    assert [(r["group"], r["index"]) for r in replies] == [(0, 0), (0, 1), (1, 0)]
    assert replies[2]["sent_s"] >= 0.05


def test_the_groups_of_a_play_are_what_the_driver_reads(driver: Any) -> None:
    short, long = [asdict(part) for part in long_among_short(seed=1)]
    long["start_after_s"] = 0.0
    replies = driver.play(Pipeline(), json.loads(json.dumps([short, long])), io.StringIO())
    assert [(r["num_prompt"], r["num_output"]) for r in replies] == [(20, 200)] * 4 + [(2500, 8)] * 3


def test_a_request_that_the_library_gives_up_is_an_error(driver: Any) -> None:
    with pytest.raises(RuntimeError, match="request 0 was given up: finished"):
        driver.play(Pipeline(num_ignored=1), [group([3], 1)], io.StringIO())
