"""What an encoder settles by its nature, and what of it the table at start tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noria.config.asked import EngineOptions
from noria.config.engine import StepCost
from noria.config.errors import ConfigError
from noria.config.footprint import Footprint
from noria.config.model import EncoderConfig, ModelConfig
from noria.config.parse import from_mapping
from noria.config.report import late_rows, render, startup_table
from noria.config.resolve import resolve
from noria.config.resolved import Resolved
from noria.config.step_budget import StepTime, settle_step
from noria.core.policies import WholePrompts, choose_policies
from noria.core.prices import TokenPrices
from support_config import footprint, hardware, model


def encoder(max_position: int) -> ModelConfig:
    of_encoder = EncoderConfig(num_token_types=2, num_positions=max_position)
    return replace(model(max_position), architecture="bert", has_logits=False, encoder=of_encoder)


def resolved(asked: dict[str, object] | None = None, max_position: int = 512) -> Resolved:
    takes: Footprint = replace(footprint(kv_dtype="float16", max_position=max_position), keeps_kv=False)
    options = from_mapping(EngineOptions, {**(asked or {}), "kv_cache_dtype": "float16"})
    return resolve(options, encoder(max_position), hardware(), takes, "made-up")


def test_texts_are_never_cut_and_nothing_of_them_is_kept_and_the_table_says_so() -> None:
    result = resolved()
    scheduler, cache = result.config.scheduler, result.config.cache
    assert (scheduler.enable_chunked_prefill, cache.enable_prefix_caching) == (False, False)
    assert isinstance(choose_policies(scheduler).split, WholePrompts)
    table = render(startup_table(result))
    assert "an encoder's tokens see the whole text, so none is cut" in table
    assert "equal beginnings of texts have different states" in table


def test_blocks_are_those_of_one_step() -> None:
    result = resolved()
    assert result.config.cache.num_blocks == 2048 // 16 + result.config.scheduler.max_num_seqs
    assert "as many as the texts of one step take" in render(startup_table(result))


@pytest.mark.parametrize(
    ("max_position", "asked", "tokens"),
    [(512, {}, 2048), (8192, {}, 8192), (8192, {"max_model_len": 3000}, 3000)],
)
def test_a_step_holds_the_longest_text(max_position: int, asked: dict[str, object], tokens: int) -> None:
    result = resolved(asked, max_position)
    assert result.config.scheduler.max_num_batched_tokens == tokens
    assert result.config.scheduler.max_model_len == asked.get("max_model_len", max_position)


def test_a_stated_step_that_is_too_short_for_a_text_is_refused_with_what_would_do() -> None:
    with pytest.raises(ConfigError) as refusal:
        resolved({"max_num_batched_tokens": 256})
    assert "max_num_batched_tokens (256) is less than max_model_len (512" in str(refusal.value)
    assert "--max-model-len 256" in str(refusal.value)
    assert "--max-num-batched-tokens 512" in str(refusal.value)
    assert "enable-chunked-prefill" not in str(refusal.value)
    assert resolved({"max_num_batched_tokens": 512}).config.scheduler.max_num_batched_tokens == 512


@pytest.mark.parametrize(("token_s", "tokens"), [(1e-4, 992), (1e-3, 512)])
def test_a_step_is_timed_to_be_short_and_still_holds_the_longest_text(token_s: float, tokens: int) -> None:
    before = resolved()
    assert before.is_step_open
    cost = StepCost(0.1, 0.0005, token_s, 0.0)
    result = settle_step(before, [StepTime(n, 0, cost.fixed_s + cost.seconds(n, 0)) for n in (16, 64, 256)])
    assert result.config.scheduler.max_num_batched_tokens == tokens
    (row,) = late_rows(result)
    assert ("as many as max_model_len" in row.note) == (tokens == 512)
    prices = choose_policies(result.config.scheduler).prices
    assert isinstance(prices, TokenPrices) and prices.step == tokens
