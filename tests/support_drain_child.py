"""A server process for tests of its end: `python support_drain_child.py SHUTDOWN_TIMEOUT`.

Prints its port; every line on its standard input is a step of its engine. A first SIGTERM or SIGINT orders it to
drain, a second one to end at once.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading

from noria.config.serving import ServerOptions
from noria.engine.orders import Order
from noria.server.lifecycle import make_server
from noria.server.sockets import bind
from support_server import FakeEngine, app_for, says


def main(shutdown_timeout_s: float) -> None:
    engine = FakeEngine(says("again ", ends=False), is_auto=False)

    def step_by_line() -> None:
        for _ in sys.stdin:
            engine.step()

    threading.Thread(target=step_by_line, daemon=True).start()
    options = ServerOptions(port=0, shutdown_timeout=shutdown_timeout_s, uvicorn_log_level="warning")
    asyncio.run(serve(engine, options))


async def serve(engine: FakeEngine, options: ServerOptions) -> None:
    socket = bind(options)
    server = make_server(app_for(engine), options)
    orders = iter((Order.DRAIN, Order.QUIT))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: server.obey(next(orders)))
    running = asyncio.ensure_future(server.serve(sockets=[socket]))
    while not server.started:
        await asyncio.sleep(0.01)
    print(socket.getsockname()[1], flush=True)
    await running


if __name__ == "__main__":
    main(float(sys.argv[1]))
