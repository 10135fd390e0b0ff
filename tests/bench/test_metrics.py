"""Figures of a run made by hand, by the definitions of docs/bench.md; vLLM's fields by vLLM's definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noria.bench.exposition import sample_of
from noria.bench.metrics import Load, Window, deadline_miss_frac, find_window, summarise
from noria.bench.outcome import Outcome, Status
from noria.bench.slo import Slo, decided, parse_slo
from noria.bench.steady import is_over_saturated, little, trend, warm_up_count
from noria.bench.target import Sample
from noria.bench.validity import Check, are_valid, checks
from noria.bench.vllm_json import vllm_fields
from noria.config.errors import ConfigError

# arrives at 1, is sent at 1.1, tokens at 1.5 (1), 1.7 (1), 2.1 (2); the stream ends at 2.2
ONE = Outcome(
    index=0,
    arrival_s=1.0,
    sent_s=1.1,
    chunk_s=(1.5, 1.7, 2.1),
    chunk_tokens=(1, 1, 2),
    end_s=2.2,
    status=Status.OK,
    num_prompt=10,
    num_output=4,
    num_planned=10,
    num_asked=4,
)


def shifted(one: Outcome, index: int, by_s: float) -> Outcome:
    return replace(
        one,
        index=index,
        arrival_s=one.arrival_s + by_s,
        sent_s=one.sent_s + by_s,
        chunk_s=tuple(moment + by_s for moment in one.chunk_s),
        end_s=one.end_s + by_s,
    )


def steady(count: int = 60) -> list[Outcome]:
    """One a second, all alike."""
    return [shifted(ONE, index, float(index)) for index in range(count)]


def test_times_of_a_request_are_those_of_the_definitions() -> None:
    assert ONE.ttft_s == pytest.approx(0.4)
    assert ONE.ttft_slo_s == pytest.approx(0.5)
    assert ONE.send_lag_s == pytest.approx(0.1)
    assert ONE.tpot_s == pytest.approx((2.1 - 1.5) / 3)
    assert ONE.e2el_s == pytest.approx(1.1)
    assert ONE.e2el_slo_s == pytest.approx(1.2)
    assert ONE.chunk_gaps_s() == pytest.approx([0.2, 0.4])
    assert ONE.token_gaps_s() == pytest.approx([0.2, 0.2, 0.2])
    assert replace(ONE, num_output=1).tpot_s is None


def test_a_steady_run_has_its_rates_in_the_window() -> None:
    summary = summarise(steady(), Slo(ttft_s=0.6, tpot_s=0.3))
    assert summary.window == Window(1.0, 60.0, 0, "after the warm-up (MSER-5), before the drain")
    assert summary.output_throughput == pytest.approx(4, rel=0.03)
    assert summary.output_throughput_total == pytest.approx(240 / 61.2)
    assert summary.request_throughput == pytest.approx(1, rel=0.05)
    assert summary.attainment == 1
    assert summary.goodput == pytest.approx(1, rel=0.03)
    assert summary.figures["ttft"].mean.value == pytest.approx(0.4)
    assert summary.figures["itl"].count == 180
    assert "queue_wait" not in summary.figures


def test_attainment_is_of_all_arrivals_and_not_of_the_answered() -> None:
    run = steady(40)
    run[10] = replace(run[10], status=Status.ERROR, chunk_s=(), chunk_tokens=(), num_output=0)
    run[11] = replace(run[11], status=Status.REJECTED, chunk_s=(), chunk_tokens=(), num_output=0)
    run[12] = replace(run[12], status=Status.TIMEOUT)
    run[13] = replace(run[13], status=Status.CUT)
    summary = summarise(run, Slo(ttft_s=0.6))
    assert (summary.num_good, summary.num_judged) == (36, 39)  # only the one that was cut is left out
    assert summary.counts == {"ok": 36, "error": 1, "rejected": 1, "timeout": 1, "cut": 1}


def test_the_limit_counts_from_the_intended_arrival() -> None:
    assert summarise(steady(), Slo(ttft_s=0.45)).attainment == 0  # 0.4 from the send, 0.5 from the arrival
    assert summarise(steady(), Slo(e2el_s=1.15)).attainment == 0


def test_a_single_token_keeps_a_limit_on_later_ones_and_is_counted() -> None:
    lone = replace(ONE, chunk_s=(1.5,), chunk_tokens=(1,), num_output=1)
    summary = summarise([lone], Slo(tpot_s=0.001))
    assert summary.attainment == 1
    assert summary.num_single_token == 1
    assert "tpot" not in summary.figures


def test_late_tokens_are_counted_one_by_one() -> None:
    # due: 1.6, 1.7, 1.8, 1.9; come: 1.5, 1.7, 2.1, 2.1
    assert deadline_miss_frac([ONE], Slo(ttft_s=0.6, tpot_s=0.1 + 1e-9)) == 0.5
    assert deadline_miss_frac([ONE], Slo(ttft_s=0.6)) is None


def test_warm_up_is_cut_where_the_error_of_the_rest_is_least() -> None:
    random = np.random.default_rng(1)
    level = random.normal(1.0, 0.1, 400)
    level[:40] += np.linspace(5, 0, 40)
    assert 20 <= warm_up_count(level) <= 60
    assert warm_up_count(random.normal(1.0, 0.1, 400)) <= 100
    assert warm_up_count(level[:10]) == 0


def test_a_slow_start_is_outside_the_window() -> None:
    run = steady(100)
    for index in range(15):
        late = 2.0 - 0.1 * index
        run[index] = replace(run[index], chunk_s=tuple(moment + late for moment in run[index].chunk_s))
    window = find_window(run, 102.0)
    assert 10 <= window.num_warm_up <= 20
    assert window.start_s == run[window.num_warm_up].arrival_s


def test_a_burst_has_no_window_but_the_whole_run() -> None:
    run = [replace(ONE, index=index) for index in range(8)]
    assert find_window(run, 2.2).why.startswith("the whole run")
    assert summarise([], Slo()).figures == {}


def test_littles_law_holds_for_a_steady_run_and_not_for_one_that_is_cut() -> None:
    begins, ends = np.arange(0.0, 100.0), np.arange(0.0, 100.0) + 3.0
    law = little(begins, ends, (10.0, 90.0))
    assert law.num_inside == pytest.approx(3.0)
    assert law.error < 0.01
    assert little(begins, np.minimum(ends, 50.0).clip(min=begins), (10.0, 90.0)).error < 0.05
    assert little(begins[:0], ends[:0], (0.0, 1.0)).error == 0


def test_a_growing_queue_is_seen() -> None:
    times = np.arange(0.0, 200.0)
    growing, level = times / 10, np.full(200, 3.0) + np.sin(times)
    assert trend(growing) == pytest.approx(1)
    assert abs(trend(level)) < 0.6
    assert is_over_saturated(times, growing, growing)
    assert not is_over_saturated(times, level, growing)
    assert not is_over_saturated(times[:20], growing[:20], growing[:20])


def test_load_is_weighted_by_time_and_counters_by_their_growth() -> None:
    def sample(time_s: float, kv_util: float, preemptions: float, hits: float) -> Sample:
        return Sample(
            time_s, kv_util, 2.0, 1.0, preemptions=preemptions, prefix_queries=10 * hits, prefix_hits=hits
        )

    samples = [sample(1, 0.0, 5, 1), sample(10, 0.2, 6, 2), sample(40, 0.8, 8, 3), sample(50, 0.8, 11, 5)]
    load = summarise(steady(), Slo(), samples).load
    assert load is not None
    assert load.kv_util_mean == pytest.approx((9 * 0.0 + 30 * 0.2 + 10 * 0.8) / 49)
    assert load.kv_util_p99 == 0.8
    assert load.preempt_rate == pytest.approx(6 / 60)
    assert load.prefix_hit_rate == pytest.approx(0.1)
    assert load.recompute_frac is None


def test_what_is_wanted_of_metrics_is_read() -> None:
    text = (
        "# HELP vllm:kv_cache_usage_perc x\n"
        'vllm:kv_cache_usage_perc{engine="0",model_name="a b"} 0.25\n'
        'vllm:num_requests_running{engine="0"} 3.0\n'
        'vllm:num_preemptions_total{engine="0"} 7.0\n'
        "process_cpu_seconds_total 5\n"
    )
    sample = sample_of(4.0, text)
    assert sample is not None
    assert (sample.time_s, sample.kv_util, sample.num_running, sample.preemptions) == (4.0, 0.25, 3.0, 7.0)
    assert sample_of(4.0, "other 1\n") is None


def test_limits_are_read_as_people_write_them() -> None:
    assert parse_slo(("ttft:500", "tpot:50")) == Slo(0.5, 0.05)
    assert parse_slo(("chat",)) == Slo(0.2, 0.05)
    assert parse_slo(("chat", "e2el:9000")) == Slo(0.2, 0.05, 9.0)
    assert not parse_slo(()).is_stated
    for word in ("ttft", "ttft:x", "itl:5", "ttft:-1"):
        with pytest.raises(ConfigError, match="must be one of"):
            parse_slo((word,))


def test_nobody_is_judged_before_those_who_came_earlier() -> None:
    """The quick ones end first: to judge by them would favour them."""
    run = [shifted(ONE, index, float(index)) for index in range(5)]
    slo = Slo(ttft_s=0.6)
    waiting = [(9, 2.5, False)]  # came between the second and the third
    known = decided(run, waiting, slo, now_s=3.0)
    assert known.is_bad == (False, False)
    known = decided(run, waiting, slo, now_s=4.0)  # it has missed its limit by now
    assert known.is_bad == (False, False, True, False, False, False)
    known = decided(run, [(9, 2.5, True)], slo, now_s=9.0)  # it has its first token, but it has not ended
    assert known.is_bad == (False, False)


def found(run: list[Outcome], slo: Slo | None = None, is_fixed: bool = True) -> dict[str, bool | None]:
    limits = slo or Slo()
    return {check.name: check.is_ok for check in checks(run, summarise(run, limits), limits, is_fixed, 0)}


def test_a_client_that_is_late_is_said_and_a_wide_limit_allows_more() -> None:
    assert found(steady())["load_generator"] is False  # 100 ms
    assert found(steady(), Slo(ttft_s=11.0))["load_generator"] is True  # 1 % of 11 s
    quick = [replace(one, sent_s=one.arrival_s + 0.004) for one in steady()]
    assert found(quick)["load_generator"] is True
    assert found(quick)["little"] is True
    assert found(quick)["stationary"] is True


def test_prompts_that_are_not_what_was_meant_make_a_run_invalid() -> None:
    run = [replace(one, sent_s=one.arrival_s, num_planned=9) for one in steady()]
    told = checks(run, summarise(run, Slo()), Slo(), True, 0)
    assert not are_valid(told)
    assert "token_mismatch" in next(check.text for check in told if check.name == "prompt_tokens")
    right = [replace(one, num_planned=10) for one in run]
    assert are_valid(checks(right, summarise(right, Slo()), Slo(), True, 0))
    unknown = [replace(one, num_planned=None) for one in run]
    assert found(unknown)["prompt_tokens"] is None


def test_answers_of_another_length_and_failures_are_said() -> None:
    run = steady()
    run[3] = replace(run[3], status=Status.ERROR, error="gone")
    assert found(run)["answered"] is False
    short = [replace(one, num_asked=5) for one in steady()]
    assert found(short)["output_tokens"] is False
    assert found(short, is_fixed=False)["output_tokens"] is None


def test_the_fields_of_vllm_are_by_its_definitions() -> None:
    """From the send, over the whole run, raw gaps, ended by the last chunk."""
    other = replace(shifted(ONE, 1, 1.0), chunk_s=(2.7, 2.9, 3.4), end_s=3.6)
    bad = replace(shifted(ONE, 2, 2.0), status=Status.ERROR, chunk_s=(), chunk_tokens=(), num_output=0)
    fields = vllm_fields([other, ONE, bad], Slo(ttft_s=0.5, tpot_s=1.0))
    ttfts, latencies = np.array([0.4, 0.6]), np.array([1.0, 1.3])
    gaps = np.array([0.2, 0.4, 0.2, 0.5])
    assert (fields["completed"], fields["failed"]) == (2, 1)
    assert fields["duration"] == pytest.approx(bad.end_s - 1.1)
    assert fields["mean_ttft_ms"] == pytest.approx(ttfts.mean() * 1e3)
    assert fields["std_ttft_ms"] == pytest.approx(ttfts.std() * 1e3)
    assert fields["p99_ttft_ms"] == pytest.approx(np.percentile(ttfts, 99) * 1e3)
    assert fields["mean_tpot_ms"] == pytest.approx(((latencies - ttfts) / 3).mean() * 1e3)
    assert fields["median_itl_ms"] == pytest.approx(np.median(gaps) * 1e3)
    assert fields["mean_e2el_ms"] == pytest.approx(latencies.mean() * 1e3)
    assert fields["output_throughput"] == pytest.approx(8 / fields["duration"])
    assert fields["total_token_throughput"] == pytest.approx(28 / fields["duration"])
    assert fields["request_goodput"] == pytest.approx(1 / fields["duration"])
    assert fields["output_lens"] == [4, 4, 0]
    assert fields["itls"][2] == []
    assert fields["max_concurrent_requests"] == 2


def test_a_cache_that_knew_prompts_before_the_run_is_told_with_what_to_do() -> None:
    load = Load(0.1, 0.2, None, None, None, 0.98, None, 1.0, 0.0)
    summary = replace(summarise(steady(), Slo()), load=load)

    def told(sharing: float) -> Check:
        return next(
            one for one in checks(steady(), summary, Slo(), True, sharing) if one.name == "prefix_hits"
        )

    assert told(0.9).is_ok is True
    assert told(0.5).is_ok is False
    assert "--bench-seed" in told(0.5).text
