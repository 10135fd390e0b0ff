"""`noria serve`: a model behind the OpenAI API.

The web framework takes longer to import than a small model to load, so it is imported beside the loading.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from noria.cli.starting import import_in_background, no_collections, share_interpreter
from noria.config.report import late_rows, notices, render, startup_table
from noria.config.resolved import Resolved
from noria.config.serving import ServeOptions
from noria.engine.build import Engine, OpenedModel, load_engine, open_model, start_engine
from noria.engine.trace import chrome_trace
from noria.offline.progress import bytes_progress
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer

if TYPE_CHECKING:
    from noria.server.served import ServedModel


def run(options: ServeOptions) -> int:
    logging.getLogger("noria").setLevel(logging.INFO)
    share_interpreter()
    with no_collections():
        web = import_in_background("noria.server.app", "noria.server.lifecycle")
        opened = open_model(options.engine.model)
        tokenizer = build_tokenizer(opened.tokenizer)
        if not tokenizer.has_chat_template:
            print("note: the model brings no chat template; chats need --chat-template FILE", file=sys.stderr)
        with bytes_progress("Loading weights", is_shown=sys.stderr.isatty()) as progress:
            loaded = load_engine(opened, options.engine, _show, progress)
        web.join()
        engine = start_engine(loaded, options.queue)
    print(render(late_rows(engine.resolved)), file=sys.stderr)
    try:
        return _serve(engine, opened, tokenizer, options)
    finally:
        engine.client.shutdown()


def _serve(engine: Engine, opened: OpenedModel, tokenizer: Tokenizer, options: ServeOptions) -> int:
    from noria.server.app import create_app
    from noria.server.lifecycle import run as run_server

    recorder = engine.client.recorder
    with no_collections():
        app = create_app(
            engine.client,
            served_model(opened, tokenizer, engine.resolved, options),
            options.server,
            lambda: chrome_trace(recorder.steps(), recorder.requests()),
        )
    return run_server(app, options.server)


def _show(resolved: Resolved) -> None:
    """The start-up table, before weights are read."""
    print(render(startup_table(resolved)), file=sys.stderr)
    for notice in notices(resolved):
        print(f"note: {notice}", file=sys.stderr)


def served_model(
    opened: OpenedModel, tokenizer: Tokenizer, resolved: Resolved, options: ServeOptions
) -> ServedModel:
    """What the server has to know of a model whose engine runs with the `resolved` settings."""
    from noria.server.served import ServedModel

    config, cache = resolved.config, resolved.config.cache
    return ServedModel(
        names=options.server.served_model_name or (opened.name,),
        tokenizer=tokenizer,
        max_model_len=config.scheduler.max_model_len,
        vocab_size=config.model.vocab_size,
        max_logprobs=options.server.max_logprobs,
        created=int(time.time()),
        generation_defaults=opened.generation_defaults,
        cache_labels={
            "block_size": str(cache.block_size),
            "num_gpu_blocks": str(cache.num_blocks),
            "cache_dtype": cache.dtype,
            "enable_prefix_caching": str(cache.enable_prefix_caching),
            "gpu_memory_utilization": str(options.engine.memory.gpu_memory_utilization),
            "kv_cache_size_tokens": str(resolved.memory.num_tokens),
            "kv_cache_max_concurrency": str(resolved.memory.num_longest_requests),
        },
        seed=config.seed,
    )
