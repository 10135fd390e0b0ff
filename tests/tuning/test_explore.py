"""The simulated stage: pruning changes how long it takes, and not what it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noria.bench.certificate import Verdict
from noria.capacity.arrivals import Arrival
from noria.capacity.driving import Driver
from noria.capacity.front import NO_FRONT, Front
from noria.capacity.model_file import Calibration
from noria.capacity.replica import Outcome
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError
from noria.core.outputs import FinishReason
from noria.tuning.attempts import with_attempts
from noria.tuning.explore import Explorer, explore
from noria.tuning.foresight import Foresight
from noria.tuning.limits import Limits
from noria.tuning.load import begin_s, covering_length, make_load, num_warm_up
from noria.tuning.setting import Setting, serve_arguments
from noria.tuning.simulated import Peak, SimulatedProber, _ClearlyLateError, _Watch
from noria.tuning.space import Space, decide_alike, feasible, neighbours
from support_engine import engine_config
from support_tuning import calibration, tuned_load

# A step takes 4 ms, 0.3 ms a token and 2 ms an answer's token: a gap beside 512 prompt tokens takes 160 ms.
LIMITS = Limits(ttft_s=2.0, itl_s=0.06)
SPACE = Space(num_seqs=(2, 16), step_tokens=(64, 128, 512), block_sizes=(16,), prefix_caching=(True,))


def explorer(limits: Limits = LIMITS, can_go_on: bool = True) -> Explorer:
    return Explorer(calibration(), tuned_load(), limits, 100, lambda: can_go_on)


def with_setting(setting: Setting, front: Front = NO_FRONT) -> Calibration:
    return replace(calibration(), config=setting.config(calibration().config), front=front)


def test_the_planted_best_setting_is_found_as_a_search_of_every_setting_finds_it() -> None:
    limits = replace(LIMITS, ttft_s=1.0)
    tried = explorer(limits)
    ranked = explore(tried, SPACE, lambda block_size: None, lambda done, total: None)
    plain = explorer(limits)
    plain.saturated_rate()  # settles how many requests a probe takes, as it did above
    rates = {
        setting: found.rate.estimate
        for setting in SPACE.first_round()
        if (found := plain.search(setting, 2.0, 0.02, 16)).rate is not None
    }
    best = max(rates, key=lambda setting: rates[setting])
    assert best.max_num_batched_tokens in (64, 128)  # steps of 512 tokens break the limit on gaps
    assert best.max_num_seqs == 16
    assert ranked[0].estimate == pytest.approx(rates[best], rel=0.02)
    assert ranked[0].rate is not None
    assert ranked[0].rate.estimate > 1.1 * rates[Setting(2, 64)]


def test_a_setting_that_is_far_from_the_best_is_out_after_one_probe() -> None:
    tried = explorer()
    good = tried.try_setting(Setting(16, 128), 3.0)
    bad = tried.try_setting(Setting(1, 64), 3.0)
    assert good.rate is not None
    assert bad.rate is not None
    assert len(bad.rate.probes) == 1
    assert "90% of the best rate" in bad.why_out
    assert bad.estimate == 0


def test_bounds_that_are_never_reached_make_no_difference_so_one_of_them_is_simulated() -> None:
    config = calibration().config
    prober = SimulatedProber(with_setting(Setting(64, 512)), tuned_load(), LIMITS, 100)
    first = prober.probe(1.0)
    assert prober.peak is not None
    assert prober.peak.num_running < 64
    other = Setting(256, 512)
    assert decide_alike(Setting(64, 512).config(config), other.config(config), prober.peak)
    again = SimulatedProber(with_setting(other), tuned_load(), LIMITS, 100).probe(1.0)
    assert again == first
    assert not decide_alike(Setting(64, 512).config(config), Setting(2, 512).config(config), Peak(3, 512))
    assert not decide_alike(
        Setting(64, 512).config(config), Setting(64, 512, block_size=8).config(config), Peak(3, 100)
    )


def test_blocks_that_make_no_difference_are_one_setting_with_the_others_named() -> None:
    """Random prompts share nothing, so neither blocks nor the prefix cache change a step."""
    tried = explorer()
    space = Space(num_seqs=(16,), step_tokens=(128,), block_sizes=(8, 16, 32), prefix_caching=(True, False))
    ranked = explore(tried, space, lambda block_size: None, lambda done, total: None)
    variants = [one for one in tried.found.values() if one.setting.block_size or one.setting.max_num_seqs]
    assert not any(one.setting.block_size for one in ranked)
    assert all(one.same_as is not None for one in variants if one.setting.block_size and not one.why_out)
    best = ranked[0].setting
    alike = {one.setting for one in tried.found.values() if one.same_as == best}
    assert {(one.block_size, one.enable_prefix_caching) for one in alike} >= {
        (8, None),
        (32, None),
        (32, False),
    }


def test_blocks_that_make_a_difference_are_settings_of_their_own() -> None:
    """Prompts share 60 tokens: of these a block of 64 shares nothing."""
    options = WorkloadOptions(
        prompt_tokens="40", output_tokens="4", prefix_tokens=60, prefix_groups=1, prefix_sharing=1.0
    )
    load = make_load(options, LoadOptions(), 200, 4096)
    tried = Explorer(calibration(), load, replace(LIMITS, ttft_s=1.0), 100, lambda: True)
    base = tried.try_setting(Setting(16, 128), 0.7 * tried.saturated_rate())
    finer = tried.try_variant(base.setting, Setting(16, 128, block_size=8))
    coarser = tried.try_variant(base.setting, Setting(16, 128, block_size=64))
    assert finer.same_as is coarser.same_as is None
    assert finer.rate is not None
    assert finer.rate.probes[0].rate in {one.rate for one in base.rate.probes} if base.rate else False
    assert coarser.estimate < base.estimate <= finer.estimate


def test_the_same_search_twice_finds_the_same() -> None:
    one, two = (explorer().search(Setting(16, 128), 2.0, 0.05) for _ in range(2))
    assert one == two


def test_what_clearly_misses_its_limits_is_ended_early_with_the_same_verdict() -> None:
    load = tuned_load(most=200)
    prober = SimulatedProber(with_setting(Setting(16, 128)), load, LIMITS, 200)
    found = prober.probe(50.0)
    assert found.verdict.value == "fail"
    assert found.margin > 0
    assert prober.peak is None
    assert found.num_requests < 200


def test_a_simulated_load_of_conversations_leaves_out_the_warm_up_that_a_real_one_does() -> None:
    """The first tenth of the conversations, not of the requests: 5 of 50; then 200 - 5 requests may have 29 late ones
    before it is clear that three times too many are."""
    options = WorkloadOptions(prompt_tokens="20", output_tokens="4", turns="4")
    play = make_load(options, LoadOptions(), 200, 4096).play(2.0, 200)
    assert (len(play.due), num_warm_up(play)) == (50, 5)
    first_s = begin_s(play)
    assert first_s == play.due[5][0]
    watch = _Watch(Driver(play, 0), play, Limits(ttft_s=1.0), NO_FRONT)

    def late(number: int, at_s: float) -> Outcome:
        arrival = Arrival(str(number), at_s, (1,) * 24, 20, 4)
        return Outcome(arrival, 0, [at_s + 2.0, at_s + 2.1], FinishReason.LENGTH, at_s + 2.1)

    for number in range(
        5
    ):  # the first turns of all, and turns that follow soon: a server that is empty is too kind
        watch.follow_up(late(number, first_s - 0.1))
    for number in range(29):
        watch.follow_up(late(5 + number, first_s + number))
    with pytest.raises(_ClearlyLateError):
        watch.follow_up(late(34, first_s + 29))


def test_a_short_workload_finds_the_rate_that_a_long_one_finds() -> None:
    """Sent once, it would be over before a queue has grown to the limit, at any rate."""
    rates = []
    for most in (60, 1200):
        tried = Explorer(calibration(), tuned_load(most=most), Limits(ttft_s=3.0), 60, lambda: True)
        found = tried.search(Setting(16, 128), 0.7 * tried.saturated_rate(), 0.05)
        assert found.rate is not None
        rates.append(found.rate.passed)
    assert rates[0] == pytest.approx(rates[1], rel=0.15)
    once = Explorer(calibration(), tuned_load(most=60), Limits(ttft_s=3.0), 60, lambda: True)
    found = once.search(Setting(16, 128), rates[1], 0.05)
    assert found.rate is not None
    assert found.rate.passed > 1.15 * rates[1]


def test_what_http_takes_is_part_of_the_latency_that_is_limited() -> None:
    engine, served = (
        SimulatedProber(with_setting(Setting(16, 128), front), tuned_load(), LIMITS, 100).probe(0.5)
        for front in (NO_FRONT, Front(request_s=0.5))
    )
    assert served.figures.ttft.value == pytest.approx(engine.figures.ttft.value + 0.5, rel=0.01)
    slow = SimulatedProber(with_setting(Setting(16, 128), Front(LIMITS.ttft_s)), tuned_load(), LIMITS, 100)
    assert slow.probe(0.5).verdict is Verdict.FAIL
    assert slow.peak is None  # every request is late: ended early


def test_a_certificate_is_foretold_well_below_the_limit_and_not_at_it() -> None:
    """Nor of too few requests, nor of a load that is over before a queue can grow."""
    tried = explorer(replace(LIMITS, ttft_s=1.0))
    setting = Setting(16, 128)
    found = tried.try_setting(setting, 0.7 * tried.saturated_rate())
    assert found.rate is not None

    def is_likely(share: float, most: int, limits: Limits) -> bool:
        rate = share * found.estimate
        return Foresight(tried, lambda: most / rate / 0.8, limits).is_likely(setting, share, rate, 0.95)

    limits = replace(LIMITS, ttft_s=1.0)
    assert is_likely(0.3, 1000, limits)
    assert not is_likely(1.02, 800, limits)
    assert not is_likely(0.3, 60, limits)
    assert not is_likely(0.3, 0, limits)
    lasting = 10 * 1.0 * found.estimate * 0.3
    assert not is_likely(0.3, 1000, replace(limits, ttft_s=1000 / lasting + 1.0))


def test_what_was_out_early_is_searched_once_before_its_certificate_is_foretold() -> None:
    """What is known of it is a rate that it failed at: of that, no share that is tried would be certain."""
    tried, plain = (explorer(replace(LIMITS, ttft_s=1.0)) for _ in range(2))
    setting = Setting(1, 64)
    start = 0.7 * tried.saturated_rate()
    tried.try_setting(Setting(16, 128), start)
    early = tried.try_setting(setting, start)
    assert early.why_out
    assert early.rate is not None
    plain.saturated_rate()
    alone = plain.search(setting, start, 0.02)
    assert early.rate.estimate > 1.2 * alone.estimate
    assert tried.evidence_at(setting, 0.3, 200)
    searched = tried.found[setting]
    assert searched.estimate == pytest.approx(alone.estimate, rel=0.05)
    tried.evidence_at(setting, 0.5, 200)
    assert tried.found[setting] is searched


def test_what_was_out_early_stays_so_where_the_time_is_over() -> None:
    tried = explorer()
    tried.try_setting(Setting(16, 128), 3.0)
    early = tried.try_setting(Setting(1, 64), 3.0)
    for answers in ([False], [True, True, False]):
        left = iter(answers)
        tried.can_go_on = lambda left=left: next(left)  # type: ignore[misc]
        assert tried.searched(Setting(1, 64)) is early
        assert next(left, None) is None


def test_limits_that_nothing_can_keep_are_refused_with_the_factor() -> None:
    tried = Explorer(calibration(), tuned_load(), Limits(ttft_s=0.001), 60, lambda: True)
    with pytest.raises(ConfigError, match="TTFT limit by a factor of"):
        explore(tried, Space(num_seqs=(4,), step_tokens=(512,)), lambda size: None, lambda done, total: None)


def test_when_the_time_is_over_the_calibrated_settings_are_all_there_is() -> None:
    tried = Explorer(calibration(), tuned_load(), Limits(ttft_s=5.0, itl_s=1.0), 60, lambda: False)
    ranked = explore(tried, SPACE, lambda block_size: None, lambda done, total: None)
    assert [one.setting for one in ranked] == [Setting()]
    assert list(tried.found) == [Setting()]


def test_when_the_time_is_over_before_any_rate_passed_that_is_the_reason_given() -> None:
    with pytest.raises(ConfigError, match="give it more --minutes"):
        explore(explorer(can_go_on=False), SPACE, lambda block_size: None, lambda done, total: None)


def test_a_load_of_short_requests_is_as_long_as_a_queue_needs_to_grow() -> None:
    """A hundred requests that come within the limit on the first token would keep it at any rate."""
    load = tuned_load("8", "2", most=3000)
    tried = Explorer(calibration(), load, Limits(ttft_s=1.0), 60, lambda: True)
    rate = tried.saturated_rate()
    found = tried.search(Setting(16, 128), 0.7 * rate, 0.05)
    assert found.rate is not None
    assert found.rate.failed < 2 * rate
    assert found.rate.probes[0].num_requests > 60


def test_a_length_covers_what_it_should_in_whole_blocks() -> None:
    lengths = list(range(1, 1001))
    assert covering_length(lengths, 0.999, 16) == 1008
    assert covering_length(lengths, 0.5, 16) == 512
    assert covering_length([7], 0.999, 8) == 8


def test_every_pair_of_the_grid_can_be_and_the_middle_comes_first() -> None:
    settings = Space(itl_slo_ms=80.0).first_round()
    assert settings[0] in (Setting(64, 1024), Setting(64, None, itl_slo_ms=80.0))
    assert all((one.max_num_batched_tokens or 2**20) >= (one.max_num_seqs or 0) for one in settings)
    assert len(settings) == len(set(settings)) == 7 * 7 - 1 + 7


def test_neighbours_change_one_thing_at_a_time() -> None:
    config = calibration().config
    chosen = Setting(max_num_seqs=16, max_num_batched_tokens=256)
    told = dict(neighbours(chosen, config, Space()))
    assert told["max_num_seqs 8"] == Setting(8, 256)
    assert told["max_num_batched_tokens 512"] == Setting(16, 512)
    assert told["enable_prefix_caching off"] == Setting(16, 256, enable_prefix_caching=False)


def test_what_does_not_fit_the_memory_is_out_before_it_is_simulated() -> None:
    config = engine_config(num_blocks=64, block_size=16, max_num_seqs=4)
    assert "128 requests at once need a block each" in feasible(Setting(128, 512), config)
    assert "512" in feasible(Setting(512, 256), config)
    assert feasible(Setting(16, 512), config) == ""


def test_values_to_try_are_read_as_the_server_reads_them() -> None:
    space = with_attempts(Space(), ["max_num_seqs=32,8", "enable_prefix_caching=on"])
    assert (space.num_seqs, space.prefix_caching) == ((8, 32), (True,))
    with pytest.raises(ConfigError, match="block_size=9 must be one of 8, 16"):
        with_attempts(Space(), ["block_size=9"])
    with pytest.raises(ConfigError, match="'rate' is not searched over"):
        with_attempts(Space(), ["rate=9"])


def test_settings_are_written_as_flags_of_the_server() -> None:
    options = Setting(16, 256, enable_prefix_caching=False).overrides()
    assert serve_arguments(options) == [
        "--max-num-seqs",
        "16",
        "--max-num-batched-tokens",
        "256",
        "--no-enable-prefix-caching",
    ]
