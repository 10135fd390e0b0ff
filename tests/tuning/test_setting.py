"""A candidate's server runs with what was simulated, and a search ends where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noria.config.engine import StepCost
from noria.engine.fingerprint import engine_settings
from noria.tuning.limits import Limits
from noria.tuning.real_engine import RealEngine
from noria.tuning.same_engine import OtherEngine, check_same
from noria.tuning.setting import Setting, differences, serve_options
from support_config import footprint, resolved
from support_tuning import calibration, tuned_load

FIXED = {"max_num_batched_tokens": 512}
CALIBRATED: list[dict[str, Any]] = [
    FIXED,
    {"max_num_seqs": 32, "block_size": 32, "max_model_len": 1000, **FIXED},
    {"enable_prefix_caching": False, "num_threads": 1, **FIXED},
    {"scheduling_policy": "priority", "priority_aging_s": 5.5, "admission_policy": "static", **FIXED},
    {"prefix_cache_isolation": "key", "kv_cache_memory": "1GiB", **FIXED},
]


@pytest.mark.parametrize("asked", CALIBRATED)
@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting(64, 1024),
        Setting(block_size=8, max_model_len=512),
        Setting(enable_prefix_caching=True),
    ],
)
def test_a_server_settles_what_it_is_started_with_to_what_was_simulated(
    asked: dict[str, Any], setting: Setting
) -> None:
    config = setting.config(resolved(asked).config)
    served = resolved(serve_options({"kv_cache_memory": 2**31, "seed": 3}, config))
    assert served.config.scheduler == config.scheduler
    assert served.config.cache == config.cache
    assert (served.config.num_threads, served.config.seed) == (config.num_threads, 3)
    check_same(config, engine_settings(served))


def test_rounded_weights_are_stated_as_they_were_measured() -> None:
    config = resolved({"quantization": "w8", **FIXED}, takes=footprint(quantization="w8")).config
    assert serve_options({}, config)["quantization"] == "w8"
    assert differences({"quantization": "w4", "max_num_seqs": 128}, config) == {"quantization": "w8"}


def test_steps_that_were_timed_are_timed_again_unless_a_latency_target_holds() -> None:
    config = resolved(FIXED).config
    cost = StepCost(0.1, 0.01, 0.001, 0.0)
    timed = replace(config, scheduler=replace(config.scheduler, step_cost=cost))
    assert "max_num_batched_tokens" not in serve_options(FIXED, timed)
    paced = serve_options({}, Setting(itl_slo_ms=80.1).config(timed))
    assert (paced["max_num_batched_tokens"], paced["itl_slo_ms"]) == (512, 80.1)


def test_everything_that_a_server_has_otherwise_is_told_at_once() -> None:
    config = resolved({"max_num_seqs": 32, **FIXED}).config
    told = engine_settings(resolved({"enable_prefix_caching": False, **FIXED}))
    with pytest.raises(OtherEngine) as raised:
        check_same(config, told)
    assert "enable_prefix_caching is False, not True" in str(raised.value)
    assert "max_num_seqs is 128, not 32" in str(raised.value)


def test_what_another_model_tells_of_itself_is_not_kept(tmp_path: Path) -> None:
    engine = RealEngine(calibration().config, {}, tuned_load(), Limits(ttft_s=1.0), 100, tmp_path)
    with pytest.raises(
        OtherEngine, match=r"steps were measured with test, and the server has other: .*--model"
    ):
        engine.note(Setting(), {"model": {"name": "other"}, "settings": {"model_name": "other"}})
    assert engine.fingerprint_of(Setting()) == {}
