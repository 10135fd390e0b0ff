"""Settings that fit each other, or a refusal with the numbers."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from noria.config.asked import EngineOptions
from noria.config.budget import CPU_SHARE_AT_MOST
from noria.config.engine import AdmissionPolicy, SchedulingPolicy
from noria.config.errors import ConfigError
from noria.config.report import notices, render, startup_table
from noria.config.resolve import resolve, resolve_dtype, resolve_kv_dtype
from noria.config.resolved import Resolved
from support_config import GIB, MIB, footprint, hardware, model, resolved


def reason(result: Resolved, name: str) -> str:
    return next(choice.reason for choice in result.choices if choice.name == name)


def refusal(asked: dict[str, object], **where: object) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(asked, **where)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_plain_start_on_a_roomy_machine_takes_half_and_keeps_the_models_length() -> None:
    result = resolved(machine=hardware(total=8 * GIB))
    memory = result.memory
    assert memory.budget_bytes == 4 * GIB
    assert result.config.scheduler.max_model_len == 8192
    assert memory.num_blocks == (4 * GIB - (200 + 128 + 538 + 32) * MIB) // (720 * 1024)
    assert memory.num_longest_requests == memory.num_blocks // 512
    assert notices(result) == []


def test_what_was_asked_reaches_the_engine() -> None:
    config = resolved(
        {
            "max_num_seqs": 7,
            "max_num_batched_tokens": 512,
            "block_size": 32,
            "enable_prefix_caching": False,
            "scheduling_policy": "priority",
            "priority_aging_s": 5,
            "admission_policy": "static",
            "num_threads": 3,
            "seed": 11,
        }
    ).config
    assert (config.num_threads, config.seed, config.device, config.dtype) == (3, 11, "cpu", "float32")
    assert (config.model, config.model_name) == (model(), "smollm2")
    assert (config.cache.block_size, config.cache.enable_prefix_caching) == (32, False)
    scheduler = config.scheduler
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (7, 512)
    assert (scheduler.scheduling_policy, scheduler.priority_aging_s) == (SchedulingPolicy.PRIORITY, 5.0)
    assert scheduler.admission_policy is AdmissionPolicy.STATIC


def test_a_plain_start_in_a_small_container_works_with_notices() -> None:
    """Half of 1500 MiB does not even hold the weights beside the process."""
    result = resolved(machine=hardware(total=1500 * MIB))
    memory = result.memory
    assert result.config.scheduler.max_model_len == 2048
    assert 750 * MIB < memory.budget_bytes <= CPU_SHARE_AT_MOST * 1500 * MIB
    told = notices(result)
    assert any("raised from 0.5" in notice and "memory.max" in notice for notice in told)
    assert any("shortened from the model's 8192" in notice for notice in told)


def test_memory_that_others_use_now_is_not_counted_on() -> None:
    result = resolved(machine=hardware(total=8 * GIB, available=2 * GIB))
    assert result.memory.budget_bytes == 200 * MIB + 2 * GIB - int(8 * GIB * 0.05)
    assert "free now" in reason(result, "memory")


def test_a_stated_share_is_kept() -> None:
    result = resolved({"gpu_memory_utilization": 0.25}, hardware(total=8 * GIB))
    assert result.memory.budget_bytes == 2 * GIB
    assert reason(result, "memory") == "0.25 (as asked) of 8 GiB (/sys/fs/cgroup/memory.max)"


def test_weights_over_the_budget_are_refused_with_needed_available_and_what_would_work() -> None:
    message = refusal({"gpu_memory_utilization": 0.0125}, machine=hardware(total=8 * GIB))
    assert message.startswith("the model's weights do not fit in memory: needed are 904 MiB (weights 538 MiB")
    assert "available are 102 MiB: 0.0125 (as asked) of 8 GiB" in message
    assert "--gpu-memory-utilization 0.12;" in message


def test_a_machine_that_is_too_small_is_told_how_much_it_takes() -> None:
    message = refusal({}, machine=hardware(total=600 * MIB))
    assert "the model's weights do not fit in memory" in message
    assert "of memory for this process (now 600 MiB, of which 400 MiB are free)" in message
    assert "--gpu-memory-utilization" not in message


def test_an_explicit_length_that_does_not_fit_is_refused_with_one_that_does() -> None:
    machine = hardware(total=1300 * MIB)
    message = refusal({"max_model_len": 8192}, machine=machine)
    assert "KV cache 360 MiB for 8192 tokens" in message
    fitting = int(re.findall(r"--max-model-len (\d+)", message)[0])
    assert resolved({"max_model_len": fitting}, machine).config.scheduler.max_model_len == fitting
    refusal({"max_model_len": fitting + 1}, machine=machine)


def test_an_explicit_length_takes_more_than_the_default_share_where_it_must() -> None:
    result = resolved({"max_model_len": 6000}, hardware(total=1500 * MIB))
    assert result.config.scheduler.max_model_len == 6000
    assert result.memory.num_longest_requests == 1


def test_a_length_beyond_the_models_is_refused_with_both_numbers() -> None:
    message = refusal({"max_model_len": 10000})
    assert message == (
        "--max-model-len 10000 is more than the 8192 tokens that the model can attend to. "
        "Would work: --max-model-len 8192"
    )
    assert "the 4096 tokens" in refusal({"max_model_len": 8192}, takes=footprint(max_position=4096))


def test_auto_is_the_longest_that_fits_without_a_notice() -> None:
    result = resolved({"max_model_len": "auto", "gpu_memory_utilization": 0.7}, hardware(total=1500 * MIB))
    length = result.config.scheduler.max_model_len
    assert length == result.memory.num_tokens < 8192
    assert not [notice for notice in notices(result) if "max_model_len" in notice]
    assert "auto: the longest request that the KV cache holds" in reason(result, "max_model_len")


@pytest.mark.parametrize("asked", [{}, {"max_model_len": "auto"}])
def test_a_length_that_memory_has_made_of_little_use_is_told_with_what_would_help(asked: dict) -> None:
    machine = hardware(total=1330 * MIB)
    result = resolved({"gpu_memory_utilization": 0.7, **asked}, machine)
    assert 128 <= result.config.scheduler.max_model_len < 2048
    [notice] = [notice for notice in notices(result) if notice.startswith("max_model_len")]
    assert "many prompts and answers are longer" in notice
    assert "--gpu-memory-utilization" in notice


def test_auto_without_chunked_prefill_is_what_one_step_reads() -> None:
    result = resolved({"max_model_len": "auto", "enable_chunked_prefill": False})
    assert result.config.scheduler.max_model_len == 2048
    assert "one step" in reason(result, "max_model_len")


def test_a_stated_pool_is_kept_and_the_models_length_is_fitted_to_it() -> None:
    result = resolved({"num_gpu_blocks_override": 40})
    assert (result.memory.num_blocks, result.config.scheduler.max_model_len) == (40, 640)
    assert notices(result) == [
        "max_model_len is 640: shortened from the model's 8192 to what the KV cache holds"
    ]


def test_a_stated_pool_in_bytes_is_rounded_down_to_whole_blocks() -> None:
    result = resolved({"kv_cache_memory": "400MiB"})
    assert result.memory.num_blocks == 400 * 1024 // 720
    assert result.config.scheduler.max_model_len == 8192


def test_one_block_serves_requests_of_one_block() -> None:
    assert resolved({"num_gpu_blocks_override": 1}).config.scheduler.max_model_len == 16


def test_a_stated_pool_below_an_explicit_length_is_refused_with_both_sizes() -> None:
    message = refusal({"num_gpu_blocks_override": 100, "max_model_len": 8192})
    assert "8192 tokens (--max-model-len) takes 512 blocks of the KV cache (360 MiB)" in message
    assert "stated to have 100 (70.3 MiB, 1600 tokens)" in message
    assert "Would work: --max-model-len 1600; or --num-gpu-blocks-override 512" in message


def test_a_pool_smaller_than_a_block_is_refused_with_the_size_of_one() -> None:
    message = refusal({"kv_cache_memory": 1000})
    assert "--kv-cache-memory 1000 holds no block: one block of 16 tokens takes 737280 bytes" in message
    assert "--kv-cache-memory 720KiB" in message


def test_a_stated_pool_that_memory_does_not_hold_is_refused() -> None:
    message = refusal({"kv_cache_memory": "7.5GiB"}, machine=hardware(total=8 * GIB))
    assert "needed are 8.38 GiB" in message
    fitting = re.findall(r"--kv-cache-memory (\d+MiB)", message)[0]
    resolved({"kv_cache_memory": fitting}, hardware(total=8 * GIB))


def test_two_statements_of_the_pool_contradict_each_other() -> None:
    message = refusal({"kv_cache_memory": "400MiB", "num_gpu_blocks_override": 600})
    assert "both state the KV cache's size" in message


def test_derived_blocks_never_exceed_what_all_requests_can_use() -> None:
    result = resolved({"max_num_seqs": 2, "max_model_len": 100}, hardware(total=64 * GIB))
    assert result.memory.num_blocks == 2 * 7
    assert result.memory.num_longest_requests == 2


@pytest.mark.parametrize(("length", "origin"), [(None, "from the model"), (8192, "asked for")])
def test_whole_prefill_beyond_the_step_is_refused(length: int | None, origin: str) -> None:
    message = refusal({"enable_chunked_prefill": False, "max_model_len": length})
    assert f"max_num_batched_tokens (2048) is less than max_model_len (8192, {origin})" in message
    assert "--enable-chunked-prefill" in message
    assert "--max-num-batched-tokens 8192" in message
    for change in (
        {"max_model_len": 2048},
        {"max_num_batched_tokens": 8192},
        {"enable_chunked_prefill": True},
    ):
        resolved({"enable_chunked_prefill": False, "max_model_len": length} | change)


def test_larger_steps_are_not_advised_where_their_workspace_does_not_fit() -> None:
    message = refusal(
        {"enable_chunked_prefill": False, "max_model_len": 8192},
        takes=footprint(workspace_bytes_per_step_token=2 * MIB),
    )
    assert "could never be scheduled" in message
    assert "--max-num-batched-tokens" not in message


def test_more_requests_than_tokens_in_a_step_are_lowered_with_a_notice() -> None:
    result = resolved({"max_num_batched_tokens": 16})
    assert result.config.scheduler.max_num_seqs == 16
    assert notices(result) == ["max_num_seqs is 16: lowered from 128: a step of 16 tokens advances no more"]


def test_more_threads_than_cpus_are_kept_with_a_notice() -> None:
    result = resolved({"num_threads": 9}, hardware(num_cpus=4))
    assert result.config.num_threads == 9
    assert "more than the 4 CPUs" in notices(result)[0]
    assert resolved({}, hardware(num_cpus=4)).config.num_threads == 4


def test_workspace_that_grows_with_the_context_shortens_it() -> None:
    takes = footprint(workspace_bytes_per_context_token=45 * 1024)
    plain = resolved({"max_model_len": "auto"}, hardware(total=1500 * MIB))
    result = resolved({"max_model_len": "auto"}, hardware(total=1500 * MIB), takes)
    assert plain.config.scheduler.max_model_len == result.config.scheduler.max_model_len == 2048
    assert result.memory.workspace_bytes == 32 * MIB + 2048 * 45 * 1024
    assert result.memory.budget_bytes == plain.memory.budget_bytes + 2048 * 45 * 1024


def test_everything_impossible_is_told_at_once() -> None:
    message = refusal({"max_model_len": 9000, "enable_chunked_prefill": False, "num_gpu_blocks_override": 3})
    assert message.startswith("3 settings cannot work:\n- --max-model-len 9000 is more than the 8192")
    assert "\n- one request of 8192 tokens" in message
    assert "\n- with chunked prefill off" in message


HALVED = footprint(dtype="bfloat16", weights_bytes=269 * MIB, kv_bytes_per_token=45 * 512)
IN_W8 = footprint(quantization="w8", weights_bytes=143 * MIB)
IN_W4 = footprint(quantization="w4", weights_bytes=96 * MIB)


@pytest.mark.parametrize(
    ("total", "advised"),
    [(1300, ["--dtype bfloat16", "--quantization w8", "--quantization w4"]), (902, ["--dtype bfloat16"])],
)
def test_other_formats_are_advised_where_they_would_fit(total: int, advised: list[str]) -> None:
    machine = hardware(total=total * MIB)
    message = refusal({"max_model_len": 8192}, machine=machine, others=(HALVED, IN_W8, IN_W4))
    found = [
        word for word in message.split("Would work: ")[1].split("; or ") if word.startswith(("--d", "--q"))
    ]
    assert found == advised
    assert "--dtype" not in refusal({"max_model_len": 8192}, machine=machine)


def test_a_smaller_kv_cache_is_advised_where_a_large_one_was_stated() -> None:
    machine, others = (
        hardware(total=1300 * MIB),
        (footprint(kv_dtype="float16", kv_bytes_per_token=45 * 512),),
    )
    stated = {"max_model_len": 8192, "kv_cache_dtype": "float32"}
    assert "--kv-cache-dtype float16" in refusal(stated, machine=machine, others=others)
    assert "--kv-cache-dtype" not in refusal(
        stated | {"kv_cache_dtype": "auto"}, machine=machine, others=others
    )


def test_a_format_that_takes_as_much_is_not_advised() -> None:
    same = footprint(quantization="w8")
    message = refusal({"max_model_len": 8192}, machine=hardware(total=1300 * MIB), others=(same,))
    assert "--quantization" not in message


def test_weights_that_are_to_be_rounded_are_counted_so() -> None:
    result = resolved({"quantization": "w8"}, takes=IN_W8)
    assert (result.config.quantization, result.memory.weights_bytes) == ("w8", 143 * MIB)


def test_the_dtype_is_resolved_before_the_footprint_is_taken() -> None:
    assert resolve_dtype(EngineOptions(), "cpu") == "float32"
    assert resolve_dtype(EngineOptions(), "cuda") == "bfloat16"
    with pytest.raises(AssertionError, match=r"dtype='bfloat16'.*wanted .'float32', 'none'."):
        resolve(EngineOptions(), model(), hardware(), footprint(dtype="bfloat16"), "m")


def test_the_kv_cache_is_in_float16_where_the_native_backend_computes_unless_asked_otherwise() -> None:
    assert resolve_kv_dtype("auto", "float32", "native") == "float16"
    assert resolve_kv_dtype("auto", "bfloat16", "torch") == "bfloat16"
    for backend in ("native", "torch"):
        assert resolve_kv_dtype("bfloat16", "float32", backend) == "bfloat16"
    assert resolved(takes=footprint(kv_dtype="float16")).config.cache.dtype == "float16"


def test_an_accelerator_is_used_up_to_its_default_share() -> None:
    gpu = replace(hardware(total=80 * GIB, process=0), device="cuda")
    takes = footprint(dtype="bfloat16")
    result = resolved(machine=gpu, takes=takes)
    assert result.memory.budget_bytes == int(0.92 * 80 * GIB)
    assert result.memory.process_bytes == 0


def test_the_table_at_start_says_all_that_memory_goes_to() -> None:
    text = render(startup_table(resolved(machine=hardware(total=1500 * MIB))))
    lines = text.splitlines()
    for name, value in [
        ("memory in all", "1.46 GiB  /sys/fs/cgroup/memory.max"),
        ("weights", "538 MiB"),
        ("workspace", "32 MiB"),
        ("KV cache", "90 MiB  blocks: 128, each of 16 tokens and 720 KiB"),
        ("tokens in KV cache", "2048"),
        ("longest requests", "1  of max_model_len (2048 tokens) fit at once"),
        ("max_model_len", "2048  notice: shortened from the model's 8192 to what the KV cache holds"),
        ("num_threads", "4  the 4 CPUs that this process may use (CPU affinity)"),
    ]:
        assert any(line.strip().startswith(name) and value in line for line in lines), name
    assert all(line == line.rstrip() for line in lines)
