"""The process of `noria serve` that holds the model."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from noria import __version__
from noria.cli.starting import no_collections, share_interpreter
from noria.config.report import Row, late_rows, notices, render, startup_table
from noria.config.resolved import Resolved
from noria.config.serving import ServeOptions
from noria.engine.build import Engine, load_engine, start_engine
from noria.engine.client import EngineClient
from noria.engine.facts import engine_facts, write_facts
from noria.engine.fingerprint import engine_settings, model_identity, write_fingerprint
from noria.engine.opening import OpenedModel, open_model
from noria.engine.remote.host import EngineHost
from noria.engine.remote.page import Page
from noria.engine.run_log import RunLog
from noria.offline.progress import bytes_progress

if TYPE_CHECKING:
    from noria.config.point_in_force import PointInForce

log = logging.getLogger("noria.engine")

_PREPARING_S = 20.0  # for the other processes to have imported what they need
_LOOK_EVERY_S = 0.005


def serve_engine(
    options: ServeOptions, in_force: PointInForce | None, page: Page, directory: str, orders: int
) -> int:
    """Load the model and serve it to the API processes of `page` until the descriptor `orders` says to end.

    in_force: the operating point that is in the options.
    """
    page.put_engine_pid(os.getpid())
    incarnation = page.engine().incarnation
    is_first = incarnation == 1  # one that takes another's place has nothing new to tell
    share_interpreter()
    with no_collections():
        opened = open_model(options.engine.model)
        identity: dict[str, Any] = {}

        def settled(resolved: Resolved) -> None:
            if is_first:
                _show(opened, resolved, in_force)
            write_facts(engine_facts(opened, resolved, options.engine), directory, incarnation)
            identity.update(model_identity(opened))  # as long as the files are open
            if is_first and in_force is not None:
                _compare(in_force, identity)
            page.engine_is_settled()

        with bytes_progress("Loading weights", is_shown=sys.stderr.isatty()) as progress:
            loaded = load_engine(opened, options.engine, settled, progress)
        _wait_for_quiet(page)
        engine = start_engine(loaded, options.queue, page.put_stats, page.put_crowd)
        fingerprint = {"model": identity, "settings": engine_settings(engine.resolved)}
        if in_force is not None:
            fingerprint["operating_point"] = in_force.about()
        write_fingerprint(fingerprint, directory, incarnation)
    if is_first:
        print(render(late_rows(engine.resolved), startup_table(engine.resolved)), file=sys.stderr)
    client = _logged(engine, options.server.observing.run_log, incarnation)
    host = EngineHost(client, page, directory)
    try:
        host.run(orders)
    finally:
        client.shutdown()
    host.close()
    return 0


def _show(opened: OpenedModel, resolved: Resolved, in_force: PointInForce | None) -> None:
    """The start-up table, before weights are read."""
    print(f"Noria {__version__} with the model {opened.name}", file=sys.stderr)
    rows = startup_table(resolved)
    if in_force is not None:
        rows.append(Row("operating point", in_force.point.hash, in_force.path))
    print(render(rows), file=sys.stderr)
    for notice in notices(resolved):
        print(f"note: {notice}", file=sys.stderr)


def _compare(in_force: PointInForce, identity: dict[str, Any]) -> None:
    warning = in_force.warning_here(identity, __version__)
    if warning is not None:
        log.warning(warning)


def _wait_for_quiet(page: Page) -> None:
    """The others import their libraries while the weights load; a step is timed when they have done."""
    deadline_s = time.monotonic() + _PREPARING_S
    while not page.are_apis_prepared() and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)


def _logged(engine: Engine, path: str | None, incarnation: int) -> EngineClient:
    """The client through which to submit."""
    if path is None:
        return engine.client
    own_path = path if incarnation == 1 else f"{path}.{incarnation}"
    return RunLog(engine.client, engine.resolved.config, __version__, own_path)
