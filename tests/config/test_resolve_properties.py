"""Whatever is asked of whatever machine: a result keeps its promises, a refusal's advice works."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.asked import EngineOptions
from noria.config.budget import usable_now
from noria.config.errors import ConfigError
from noria.config.footprint import Footprint
from noria.config.hardware import Hardware
from noria.config.parse import from_mapping
from noria.config.report import render, startup_table
from noria.config.resolve import resolve
from noria.config.resolved import Resolved
from support_config import GIB, KIB, MIB, model

Asked = dict[str, Any]


@st.composite
def footprints(draw: st.DrawFn, dtype: str) -> Footprint:
    return Footprint(
        dtype=dtype,
        kv_dtype=draw(st.sampled_from(["float32", "float16"])),
        weights_bytes=draw(st.sampled_from([2, 128, 512, 8192])) * MIB + draw(st.integers(0, MIB)),
        kv_bytes_per_token=draw(st.sampled_from([64, 1000, 45 * KIB, 512 * KIB])),
        max_position=draw(st.sampled_from([1, 50, 2048, 8192, 131072])),
        workspace_bytes=draw(st.sampled_from([0, 1, 64 * MIB])),
        workspace_bytes_per_step_token=draw(st.sampled_from([0, 100, 64 * KIB])),
        workspace_bytes_per_seq=draw(st.sampled_from([0, MIB])),
        workspace_bytes_per_context_token=draw(st.sampled_from([0, 0, 3000])),
    )


@st.composite
def machines(draw: st.DrawFn, device: str, takes: Footprint) -> Hardware:
    """Machines around the size that the model needs: most fit it somehow."""
    process = 0 if device == "cuda" else draw(st.integers(0, 256)) * MIB
    least = takes.weights_bytes + takes.workspace_bytes + process + 200 * MIB
    total = int(least * draw(st.sampled_from([0.3, 0.9, 1.1, 1.5, 2.5, 4, 20]))) + draw(
        st.integers(0, 64 * MIB)
    )
    most = max(total - process, 0)
    available = int(most * draw(st.sampled_from([0, 0.5, 0.9, 1, 1, 1])))
    return Hardware(device, total, available, process, "memory.max", draw(st.integers(1, 64)), "affinity")


lengths = st.sampled_from(["auto", 1, 40, 2000, 8192]) | st.integers(1, 200_000)
shares = st.sampled_from([0.3, 0.7, 0.9, 1.0]) | st.floats(0.001, 1)
pools = st.fixed_dictionaries({"kv_cache_memory": st.sampled_from([100, MIB, 32 * MIB, GIB, 5 * GIB])})
pools |= st.fixed_dictionaries({"num_gpu_blocks_override": st.integers(1, 10_000)})
steps = st.fixed_dictionaries(
    {},
    optional={
        "max_num_seqs": st.integers(1, 512),
        "max_num_batched_tokens": st.integers(1, 16384),
        "enable_chunked_prefill": st.sampled_from([True, True, False]),
    },
)


@st.composite
def asked_mappings(draw: st.DrawFn) -> Asked:
    asked: Asked = {"block_size": draw(st.sampled_from([8, 16, 256]))}
    for name, values in (("max_model_len", lengths), ("gpu_memory_utilization", shares)):
        if draw(st.sampled_from([True, False, False])):
            asked[name] = draw(values)
    for several in (pools, pools, steps):
        if draw(st.sampled_from([True, False, False])):
            asked |= draw(several)
    return asked


@st.composite
def cases(draw: st.DrawFn) -> tuple[Asked, Hardware, Footprint]:
    device, dtype = draw(st.sampled_from([("cpu", "float32"), ("cpu", "float32"), ("cuda", "bfloat16")]))
    takes = draw(footprints(dtype))
    return draw(asked_mappings()), draw(machines(device, takes)), takes


def attempt(asked: Asked, machine: Hardware, takes: Footprint) -> Resolved:
    return resolve(from_mapping(EngineOptions, asked), model(131072), machine, takes, "m")


def check_promises(asked: Asked, machine: Hardware, takes: Footprint, result: Resolved) -> None:
    memory, scheduler, cache = result.memory, result.config.scheduler, result.config.cache
    assert (memory.num_blocks, memory.block_size) == (cache.num_blocks, cache.block_size)
    assert memory.max_model_len == scheduler.max_model_len
    assert memory.num_longest_requests >= 1
    parts = memory.process_bytes + memory.weights_bytes + memory.workspace_bytes + memory.pool_bytes
    assert parts <= memory.budget_bytes <= min(machine.total_memory_bytes, usable_now(machine))
    if "gpu_memory_utilization" in asked:
        assert memory.budget_bytes <= asked["gpu_memory_utilization"] * machine.total_memory_bytes
    assert memory.pool_bytes == cache.num_blocks * cache.block_size * takes.kv_bytes_per_token
    assert 1 <= scheduler.max_model_len <= takes.max_position
    assert 1 <= scheduler.max_num_seqs <= scheduler.max_num_batched_tokens
    assert scheduler.enable_chunked_prefill or scheduler.max_model_len <= scheduler.max_num_batched_tokens
    if isinstance(asked.get("max_model_len"), int):
        assert scheduler.max_model_len == asked["max_model_len"]
    if "num_gpu_blocks_override" in asked:
        assert cache.num_blocks == asked["num_gpu_blocks_override"]
    elif "kv_cache_memory" in asked:
        assert 0 <= asked["kv_cache_memory"] - memory.pool_bytes < memory.block_bytes


@settings(max_examples=250, deadline=None)
@given(cases())
def test_a_result_keeps_its_promises_and_a_refusal_has_numbers_and_advice(
    case: tuple[Asked, Hardware, Footprint],
) -> None:
    asked, machine, takes = case
    try:
        result = attempt(*case)
    except ConfigError as error:
        for problem in re.split(r"\n- ", str(error)):
            if not problem.endswith("cannot work:"):
                assert len(re.findall(r"\d+", problem)) >= 2, problem
                assert "Would work: " in problem or "--" in problem, problem
        return
    check_promises(asked, machine, takes, result)
    table = render(startup_table(result))
    assert all(choice.name in table and choice.reason in table for choice in result.choices)


def settings_in(advice: str) -> Asked:
    """`--max-num-seqs 16 --max-num-batched-tokens 256` as a mapping; empty for advice that is no setting."""
    pairs = re.findall(r"--([a-z-]+)(?: ([0-9][0-9.]*(?:MiB|KiB)?))?", advice)
    return {name: value or True for name, value in pairs if name != "dtype"}


@settings(max_examples=250, deadline=None)
@given(cases())
def test_each_setting_that_a_single_refusal_advises_works(case: tuple[Asked, Hardware, Footprint]) -> None:
    asked, machine, takes = case
    try:
        attempt(*case)
        return
    except ConfigError as error:
        message = str(error)
    if "settings cannot work:" in message or "Would work: " not in message:
        return  # one advice mends one of several faults
    for advice in message.split("Would work: ")[1].split("; or "):
        change = settings_in(advice)
        if change:
            changed = {name: value for name, value in asked.items() if name.replace("_", "-") not in change}
            attempt(changed | change, machine, takes)


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(0, 4 * GIB))
def test_more_free_memory_never_turns_a_result_into_a_refusal(
    case: tuple[Asked, Hardware, Footprint], extra: int
) -> None:
    asked, machine, takes = case
    try:
        before = attempt(asked, machine, takes)
    except ConfigError:
        return
    most = machine.total_memory_bytes - machine.process_memory_bytes
    roomier = replace(machine, available_memory_bytes=min(machine.available_memory_bytes + extra, most))
    after = attempt(asked, roomier, takes)
    assert after.config.scheduler.max_model_len >= before.config.scheduler.max_model_len


@settings(max_examples=100, deadline=None)
@given(cases())
def test_the_same_question_has_the_same_answer(case: tuple[Asked, Hardware, Footprint]) -> None:
    answers = []
    for _ in range(2):
        try:
            answers.append(attempt(*case))
        except ConfigError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]
