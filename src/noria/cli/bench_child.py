"""The process that makes the load. It does nothing else: no drawing, no report."""

from __future__ import annotations

import asyncio
import signal
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from noria import __version__
from noria.bench.engine_target import EngineTarget
from noria.bench.http_target import open_http_target
from noria.bench.machine import describe_machine
from noria.bench.run import Asked, Stop, run
from noria.bench.target import Target, TargetFacts
from noria.bench.urgency import become_urgent
from noria.bench.vocabulary import Encode
from noria.config.asked import EngineOptions
from noria.config.benching import BenchOptions
from noria.config.errors import NoriaError
from noria.engine.build import Engine, load_engine, start_engine
from noria.engine.fingerprint import engine_settings, model_identity
from noria.engine.opening import open_model
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer


def main(options: BenchOptions, pipe: Connection) -> None:
    """Sends ("news", News) while it runs, then ("result", RunResult) or ("error", NoriaError) through the pipe."""
    stop = Stop()
    if options.target.base_url is not None:
        become_urgent()  # an engine in this process would be ahead of everybody too
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until there is a loop that can take it
    try:
        pipe.send(("result", uvloop.run(_run(options, pipe, stop))))
    except NoriaError as error:
        pipe.send(("error", error))
    finally:
        pipe.close()


async def _run(options: BenchOptions, pipe: Connection, stop: Stop) -> Any:
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop)
    target = await open_target(options)
    try:
        asked = Asked(options.workload, options.load, options.target.answer_limit)
        return await run(target, asked, lambda news: pipe.send(("news", news)), stop)
    finally:
        target.close()


async def open_target(options: BenchOptions) -> Target:
    """The server that is asked for, or an engine in this process. Raises NoriaError."""
    seed = options.workload.bench_seed
    if options.target.base_url is not None:
        encode = None
        if options.engine.model.tokenizer is not None:
            encode = _without_frame(build_tokenizer(open_model(options.engine.model).tokenizer))
        return await open_http_target(options.target, encode, seed)
    return await asyncio.to_thread(_built, options.engine, asyncio.get_running_loop(), options)


def _built(asked: EngineOptions, loop: asyncio.AbstractEventLoop, options: BenchOptions) -> Target:
    engine, tokenizer, fingerprint = start_measured_engine(asked)
    facts = TargetFacts(
        engine.resolved.config.model_name, engine.resolved.config.scheduler.max_model_len, True, fingerprint
    )
    encode = _without_frame(tokenizer)
    decode = tokenizer.decode if options.texts.save_texts else None
    return EngineTarget(
        engine.client, facts, encode, options.workload.bench_seed, loop, decode, options.target.ignore_eos
    )


def start_measured_engine(asked: EngineOptions) -> tuple[Engine, Tokenizer, dict[str, Any]]:
    """A running engine, its tokenizer and its fingerprint. Raises ModelError, ConfigError."""
    opened = open_model(asked.model)
    identity = model_identity(opened)
    loaded = load_engine(opened, asked, lambda resolved: None)
    engine = start_engine(loaded)
    fingerprint = {
        "engine": {"name": "noria", "version": __version__, "form": "in process"},
        "model": identity,
        "settings": engine_settings(engine.resolved),
        "machine": describe_machine(),
    }
    return engine, build_tokenizer(opened.tokenizer), fingerprint


def _without_frame(tokenizer: Tokenizer) -> Encode:
    return lambda text: tokenizer.encode(text, add_special_tokens=False)
