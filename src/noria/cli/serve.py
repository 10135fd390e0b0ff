"""`noria serve`: a model behind the OpenAI API.

Three kinds of process: the supervisor (this one), one engine, and one or more that speak HTTP. docs/architecture.md
draws them.
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from noria.cli.run_directory import run_directory
from noria.cli.supervisor import Role, Supervisor
from noria.config.keys_file import read_keys_file
from noria.config.logs import LINE_HEAD
from noria.config.serving import ServeOptions
from noria.engine.heartbeat import Heartbeat
from noria.engine.remote.page import ApiState, EngineState, Page
from noria.server.sockets import bind, check_certificates, release

if TYPE_CHECKING:
    from noria.config.point_in_force import PointInForce

_KILL_AFTER = 2  # times the time after which an engine counts as hung
_DRAIN_GRACE_S = 10.0  # beyond the time that requests get


log = logging.getLogger("noria.supervisor")


def run(options: ServeOptions) -> int:
    _open_log()
    in_force = _operating_point(options)
    check_certificates(options.server.connections)
    if options.server.api_keys_file is not None:
        read_keys_file(options.server.api_keys_file)  # now, rather than in every process that needs it
        # Who tells servers by a hang-up to read their files again finds this one followed anyway.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    listener = bind(options.server)
    try:
        with run_directory() as directory:
            page = Page(options.server.processes.api_server_count)
            roles = [_engine_role(options, in_force, page, directory)]
            roles += [_api_role(options, page, slot, directory, listener) for slot in range(page.num_apis)]
            return Supervisor(roles, options.server.shutdown_timeout + _DRAIN_GRACE_S).run()
    finally:
        release(listener, options.server)


def _operating_point(options: ServeOptions) -> PointInForce | None:
    if options.engine.point.operating_point is None:
        return None
    from noria.config.point_in_force import point_in_force

    in_force = point_in_force(options)
    assert in_force is not None
    log.info(in_force.words())
    return in_force


def _open_log() -> None:
    """Several processes write to one log for a long time: each line tells when, and which of them."""
    for name in ("noria", "noria.supervisor"):
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(logging.Formatter(LINE_HEAD + "%(name)s: %(message)s"))


def _engine_role(options: ServeOptions, in_force: PointInForce | None, page: Page, directory: str) -> Role:
    def work(orders: int) -> int:
        from noria.cli.serve_engine import serve_engine

        return serve_engine(options, in_force, page, directory, orders)

    heartbeat = Heartbeat(lambda: page.stats(is_alive=True), time.monotonic)
    settings = options.server.processes
    return Role(
        "engine",
        work,
        on_start=page.engine_starts,
        on_end=page.engine_ended,
        is_up=lambda: page.engine().state is EngineState.READY,
        is_hung=lambda: heartbeat.silence_s() > _KILL_AFTER * settings.engine_hang_timeout,
        is_late=lambda age_s: age_s > settings.engine_ready_timeout_s,
        drains=False,
    )


def _api_role(options: ServeOptions, page: Page, slot: int, directory: str, listener: socket.socket) -> Role:
    def work(orders: int) -> int:
        from noria.cli.serve_api import ApiProcess

        return ApiProcess(options, page, slot, directory).run(listener, orders)

    settings = options.server.processes
    return Role(
        f"api-{slot}",
        work,
        on_start=partial(page.api_starts, slot),
        on_end=partial(page.api_ended, slot),
        is_up=lambda: page.api_state(slot) is ApiState.SERVING,
        is_hung=lambda: page.api_beat_age_s(slot) > settings.api_hang_timeout,
        # It waits for the engine, however long that takes, but its loop turns meanwhile.
        is_late=lambda age_s: page.api_beat_age_s(slot) > settings.engine_ready_timeout_s,
        drains=True,
    )
