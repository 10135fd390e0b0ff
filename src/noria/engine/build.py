"""Where the concrete classes meet: from what was asked to a running engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from noria.config.asked import EngineOptions
from noria.config.engine import EngineConfig
from noria.config.footprint import Footprint
from noria.config.hardware import probe_cpu
from noria.config.model import ModelConfig
from noria.config.queue_limits import settle_queue
from noria.config.resolve import resolve, resolve_dtype, resolve_kv_dtype
from noria.config.resolved import Choice, Resolved
from noria.config.serving import QueueOptions
from noria.config.step_budget import settle_step
from noria.config.tokenizer import TokenizerSpec
from noria.core.clock import MonotonicClock
from noria.core.outputs import Delta
from noria.engine.crowd import Crowd
from noria.engine.identity import kv_identity
from noria.engine.in_process import InProcessClient
from noria.engine.loop import EngineLoop
from noria.engine.making import make_loop
from noria.engine.messages import EngineStats
from noria.engine.opening import OpenedModel
from noria.engine.records import Recorder
from noria.engine.runner_api import Runner
from noria.engine.timing import time_steps
from noria.kernels.native.choices import format_choices
from noria.kernels.native.formats import Formats
from noria.kernels.native.sizes import matrix_sizes
from noria.kernels.ops import BackendOptions
from noria.kernels.select import ChosenBackend, Wanted, choose_backend, load_backend, settle_level
from noria.models.build import build_model, cache_shape
from noria.models.footprint import footprint, packed_footprint
from noria.models.stored import StoredModel
from noria.rules.api import ModelFacts
from noria.rules.constraints import RuleConstraints
from noria.runner.runner import ModelRunner
from noria.structured.api import Constraints
from noria.structured.grammars import GrammarConstraints
from noria.structured.joined import JoinedConstraints
from noria.structured.wire import Setup

log = logging.getLogger(__name__)

_DEVICE = "cpu"  # the only one that this version runs on
Progress = Callable[[int, int], None]  # (bytes read, bytes to read), as stored


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine whose weights are in memory and that has not stepped yet."""

    runner: Runner
    resolved: Resolved
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine, and how its settings came about."""

    client: InProcessClient
    resolved: Resolved


def load_engine(
    opened: OpenedModel,
    options: EngineOptions,
    on_resolved: Callable[[Resolved], None],
    progress: Progress | None = None,
) -> LoadedEngine:
    """Settle the settings and load the weights.

    on_resolved: told of the settings before weights are read; what a step computes may be open yet.
    progress: of the reading.
    Raises ConfigError for settings that cannot work, ModelError for a checkpoint that does not hold its model.
    """
    checkpoint = opened.checkpoint
    stored = StoredModel(checkpoint, progress)
    dtype = resolve_dtype(options, _DEVICE)
    chosen = _chosen_backend(options, stored.config, dtype)
    make_backend = load_backend(chosen.name)  # before memory is looked at: what the libraries take is taken
    resolved = _identified(_resolved(opened.name, options, chosen, stored), stored)
    on_resolved(resolved)
    config = resolved.config
    shape = cache_shape(config.model, config.cache.block_size, config.cache.num_blocks)
    backend = make_backend(
        BackendOptions(
            config.dtype, config.device, config.num_threads, shape, config.quantization, config.cache.dtype
        )
    )
    model = build_model(stored, backend, config.scheduler.max_model_len)
    checkpoint.close()
    rules = _rules(config, opened.tokenizer)
    runner = ModelRunner(model, config.model.eos_token_ids, config.cache.block_size, rules)
    constraints = JoinedConstraints(_grammars(config.model, opened.tokenizer), rules)
    return LoadedEngine(runner, resolved, constraints)


def start_engine(
    loaded: LoadedEngine,
    queue: QueueOptions | None = None,
    on_stats: Callable[[EngineStats], None] = lambda stats: None,
    on_crowd: Callable[[Crowd], None] | None = None,
) -> Engine:
    """Settle by timing what a step computes, unless it was stated, and start stepping.

    queue: bounds what waits; without, anything may. on_stats, on_crowd: told of every change, see InProcessClient.

    While it is timed, which takes about a tenth of a second, the process should do nothing else.
    """
    runner, resolved = loaded.runner, loaded.resolved
    if resolved.is_step_open:
        resolved = settle_step(resolved, time_steps(runner, MonotonicClock(), resolved.config))
    if queue is not None:
        resolved = settle_queue(resolved, queue)
    make = loop_factory(resolved.config, runner, loaded.constraints)
    client = InProcessClient(make, resolved.config, on_stats, on_crowd)
    return Engine(client, resolved)


def _chosen_backend(options: EngineOptions, config: ModelConfig, dtype: str) -> ChosenBackend:
    memory = options.memory
    wanted = Wanted(
        dtype, config.head_dim, memory.block_size, options.model.quantization, memory.kv_cache_dtype
    )
    chosen = choose_backend(options.model.backend, wanted)
    if chosen.is_fallback:
        log.warning("the model runs on %s: %s", chosen.name, chosen.reason)
    return chosen


def _resolved(name: str, options: EngineOptions, chosen: ChosenBackend, stored: StoredModel) -> Resolved:
    """The settings, and beside Noria's other choices those that depend on the backend."""
    hardware = probe_cpu()
    formats = Formats(resolve_dtype(options, _DEVICE), options.model.quantization)
    takes = _footprint(chosen.name, stored, formats, options.memory.kv_cache_dtype)
    others = _lighter(chosen.name, stored, formats, options.memory.kv_cache_dtype)
    resolved = resolve(options, stored.config, hardware, takes, name, others)
    choices = _kernel_choices(chosen, options.model.isa)
    if chosen.name == "native":
        choices += format_choices(formats, stored.matrices())
    return replace(resolved, choices=(*choices, *resolved.choices))


def _identified(resolved: Resolved, stored: StoredModel) -> Resolved:
    identity = kv_identity(stored.fingerprint(), resolved.config, resolved.choices)
    return replace(resolved, config=replace(resolved.config, kv_identity=identity))


def _kernel_choices(backend: ChosenBackend, isa: str) -> list[Choice]:
    """The backend, and the level that it is set to here."""
    choices = [Choice("backend", backend.name, backend.reason, is_notice=backend.is_fallback)]
    level = settle_level(backend.name, isa)
    if level is not None:
        choices.append(Choice("isa", level.name, level.reason, is_notice=level.is_fallback))
    return choices


def _lighter(backend: str, stored: StoredModel, formats: Formats, kv: str) -> tuple[Footprint, ...]:
    """In other formats that take less, the mildest change first."""
    others = [(formats, "float16")] if kv == "float32" else []
    others.append((Formats("bfloat16", formats.quantization), kv))
    if backend == "native":
        others += [(Formats(formats.dtype, "w8"), kv), (Formats(formats.dtype, "w4"), kv)]
    return tuple(_footprint(backend, stored, *one) for one in others)


def _footprint(backend: str, stored: StoredModel, formats: Formats, kv: str) -> Footprint:
    """kv: as asked for."""
    kv_dtype = resolve_kv_dtype(kv, formats.dtype, backend)
    if backend == "native":
        return packed_footprint(stored, formats.dtype, formats.quantization, matrix_sizes(formats), kv_dtype)
    return footprint(stored.config, formats.dtype, kv_dtype)


def _grammars(model: ModelConfig, tokenizer: TokenizerSpec) -> Constraints:
    def setup() -> Setup:
        return Setup(tokenizer, model.vocab_size, _end_token_ids(model))

    return GrammarConstraints(setup, model.vocab_size, model.eos_token_ids)


def _rules(config: EngineConfig, tokenizer: TokenizerSpec) -> RuleConstraints:
    model = config.model
    facts = ModelFacts(model.vocab_size, _end_token_ids(model), tokenizer)
    return RuleConstraints(facts, config.rule_time_limit_s)


def _end_token_ids(model: ModelConfig) -> tuple[int, ...]:
    """Those that can be sampled: some checkpoints name others."""
    return tuple(i for i in model.eos_token_ids if 0 <= i < model.vocab_size)


def loop_factory(
    config: EngineConfig, runner: Runner, constraints: Constraints | None = None
) -> Callable[[Callable[[list[Delta]], None]], EngineLoop]:
    """Makes the loop of a real engine over any runner, once it is known what takes the deltas."""

    def make(publish: Callable[[list[Delta]], None]) -> EngineLoop:
        return make_loop(config, runner, MonotonicClock(), Recorder(), publish, constraints)

    return make
