"""`noria calibrate` measures steps beyond the settings' own in a second engine, and keeps what the first showed."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from noria.cli import calibrate
from noria.config.asked import EngineOptions
from noria.config.calibrating import CalibrateOptions, CalibrationOptions
from noria.config.errors import ConfigError, EngineError
from noria.core.clock import MonotonicClock
from noria.engine.in_process import InProcessClient
from noria.engine.making import make_loop
from noria.engine.records import Recorder
from support_engine import engine_config
from support_ledger_runner import LedgerRunner

OPTIONS = CalibrateOptions(EngineOptions(), CalibrationOptions("model.json", 0.02))
OWN_STEP, MOST_THAT_FIT = 64, 1000  # tokens


class _Looks:
    """A clock that goes on by being looked at: what is measured meanwhile is the same on any machine. Each look lets
    the engine's thread have the interpreter, or a quick machine would be through before that has begun.
    """

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        time.sleep(0.001)
        self._now_s += 0.01
        return self._now_s


class _Engine:
    """What `load` gives: an engine that computes nothing, with the bounds that are asked for."""

    def __init__(self, options: EngineOptions) -> None:
        asked = options.scheduler
        config = engine_config(
            num_blocks=options.memory.num_gpu_blocks_override or 400,
            max_num_seqs=asked.max_num_seqs or 8,
            max_num_batched_tokens=asked.max_num_batched_tokens or OWN_STEP,
        )
        recorder = Recorder()
        runner = LedgerRunner(config.cache.block_size)
        self.client = InProcessClient(
            lambda publish: make_loop(config, runner, MonotonicClock(), recorder, publish), config
        )
        self.resolved = SimpleNamespace(config=config)

    def __enter__(self) -> _Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.shutdown()


def _measured(monkeypatch: pytest.MonkeyPatch, load: Callable[[EngineOptions], _Engine]) -> list[int]:
    """The largest step of each engine, in tokens."""
    monkeypatch.setattr(calibrate, "load", load)
    monkeypatch.setattr(calibrate, "MonotonicClock", _Looks)
    _, runs = calibrate.measure(OPTIONS)
    return [max(sum(work.num_new for work in record.work) for record in run) for run in runs]


def test_a_second_engine_shows_larger_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, large = _measured(monkeypatch, _Engine)
    assert 0 < own <= OWN_STEP and large > 2 * OWN_STEP
    assert capsys.readouterr().err == ""


def test_where_memory_has_no_room_for_the_largest_steps_smaller_ones_are_measured_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(options: EngineOptions) -> _Engine:
        if (options.scheduler.max_num_batched_tokens or 0) > MOST_THAT_FIT:
            raise ConfigError("the KV cache does not fit")
        return _Engine(options)

    own, large = _measured(monkeypatch, load)
    assert 0 < own <= OWN_STEP and 2 * OWN_STEP < large <= MOST_THAT_FIT
    assert f"only up to {large} tokens: the KV cache does not fit" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ConfigError("no memory"), EngineError("it died")])
def test_what_the_first_engine_showed_is_kept_when_the_second_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def load(options: EngineOptions) -> _Engine:
        if options.scheduler.max_num_batched_tokens is not None:
            raise error
        return _Engine(options)

    (own,) = _measured(monkeypatch, load)
    assert 0 < own <= OWN_STEP
    assert f"not at all: {error}" in capsys.readouterr().err
