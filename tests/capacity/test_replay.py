"""A recorded run decides the same when it is put through the scheduler again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noria.bench.traces import read_trace, sniff
from noria.capacity.replay import replay
from noria.capacity.run_file import Run, read_run
from noria.config.engine import LatencyTarget, SchedulingPolicy, StepCost
from noria.config.errors import ConfigError
from noria.core.outputs import FinishReason
from support_capacity import logged_client, run_random_load
from support_engine import engine_config


def recorded(path: Path, seed: int, failing: tuple[str, ...] = (), **settings: object) -> Run:
    config = engine_config(**{"num_blocks": 40, "max_num_seqs": 8, "max_num_batched_tokens": 32, **settings})
    log = logged_client(config, path, failing)
    run_random_load(log, random.Random(seed), 150)
    log.shutdown()
    return read_run(path)


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
@pytest.mark.parametrize("prefix", [True, False])
def test_every_decision_of_a_random_run_is_the_same_again(
    tmp_path: Path, policy: SchedulingPolicy, prefix: bool
) -> None:
    for seed in range(3):
        run = recorded(tmp_path / "run.jsonl", seed, prefix=prefix, scheduling_policy=policy)
        result = replay(run)
        assert result.difference is None, str(result.difference)
        assert result.num_steps == len(run.steps) > 50
        assert len(run.ended) > 120  # some are refused: their deadline is foretold to pass


@pytest.mark.parametrize(
    "latency",
    [None, LatencyTarget(itl_s=5e-4), LatencyTarget(itl_s=5e-4, ttft_s=2e-3)],
    ids=["itself", "itl", "both"],
)
def test_steps_that_are_limited_by_time_are_the_same_again(
    tmp_path: Path, latency: LatencyTarget | None
) -> None:
    """What steps took, on a real and uneven clock, has changed how long the next ones might be."""
    # About what the runner takes: what is seen differs from it, and lies within what is believed.
    cost = StepCost(target_s=5e-4, fixed_s=1e-4, token_s=1e-5, pair_s=1e-7)
    for seed in range(3):
        run = recorded(tmp_path / "run.jsonl", seed, step_cost=cost, latency=latency)
        result = replay(run)
        assert result.difference is None, str(result.difference)
        assert result.num_steps == len(run.steps) > 50
    plain = replace(run.config.scheduler, step_cost=None, latency=None)
    assert replay(replace(run, config=replace(run.config, scheduler=plain))).difference is not None


def test_a_run_short_of_blocks_preempts_the_same_requests_again(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run.jsonl", 5, num_blocks=20)
    assert sum(step.num_preemptions for step in run.steps) > 5
    assert replay(run).difference is None


def test_requests_that_failed_fail_in_the_same_step_again(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run.jsonl", 7, failing=tuple(f"r{i}" for i in range(0, 150, 10)))
    assert {FinishReason.ERROR, FinishReason.FAULT} <= {one.record.finish for one in run.ended.values()}
    assert replay(run).difference is None


def test_another_setting_is_found_at_its_first_different_step(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run.jsonl", 3)
    scheduler = replace(run.config.scheduler, max_num_batched_tokens=16)
    result = replay(replace(run, config=replace(run.config, scheduler=scheduler)))
    assert result.difference is not None
    first_large = next(step.step for step in run.steps if sum(work.num_new for work in step.work) > 16)
    assert result.difference.step <= first_large
    assert f"step {result.difference.step}: recorded" in str(result.difference)


def test_a_log_holds_no_token_of_a_prompt_and_no_way_to_guess_one(tmp_path: Path) -> None:
    first, second = (recorded(tmp_path / f"{name}.jsonl", 1) for name in ("a", "b"))
    both = (
        first.ended.keys() & second.ended.keys()
    )  # in one of them a deadline may have been foretold to pass
    same = [one for one in both if len(first.ended[one].arrival.tokens) >= 8]
    assert any(first.ended[one].arrival.tokens[:4] != second.ended[one].arrival.tokens[:4] for one in same)
    assert not any(b"prompt_token_ids" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_log_that_was_cut_off_anywhere_reads_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = recorded(path, 2)
    content = path.read_bytes()
    header = content.index(b"\n") + 1
    for place in range(header, len(content), len(content) // 40):
        path.write_bytes(content[:place])
        part = read_run(path)
        assert part.steps == whole.steps[: len(part.steps)]
        assert replay(part).difference is None


def test_a_file_that_is_no_run_log_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"type":"nothing"}\n\n')
    with pytest.raises(ConfigError, match="line 1"):
        read_run(path)
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="does not begin with an engine's settings"):
        read_run(path)


def test_a_run_log_is_a_trace_of_every_request_that_got_a_token(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    told = [one.record for one in recorded(path, 5).ended.values()]
    served = sorted((one for one in told if one.num_output_tokens), key=lambda one: one.accepted_s)
    trace = read_trace(str(path), sniff(str(path)))
    assert [(row.num_prompt, row.num_output) for row in trace.rows] == [
        (one.num_prompt_tokens, one.num_output_tokens) for one in served
    ]
    assert [row.time_s for row in trace.rows] == [one.accepted_s - served[0].accepted_s for one in served]
    assert trace.num_left_out == len(told) - len(served)
    names = {piece.name for row in trace.rows for piece in row.pieces}
    assert len(names) < sum(len(row.pieces) for row in trace.rows)  # stems are shared
