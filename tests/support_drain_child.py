"""A server process for tests of signals: `python support_drain_child.py SHUTDOWN_TIMEOUT`.

Prints its port; every line on its standard input is a step of its engine.
"""

from __future__ import annotations

import sys
import threading

from noria.config.serving import ServerOptions
from noria.server.lifecycle import serve
from support_server import FakeEngine, app_for, says
from support_sockets import listen


def main(shutdown_timeout_s: float) -> int:
    engine = FakeEngine(says("again ", ends=False), is_auto=False)

    def step_by_line() -> None:
        for _ in sys.stdin:
            engine.step()

    threading.Thread(target=step_by_line, daemon=True).start()
    socket = listen("127.0.0.1", 0)
    print(socket.getsockname()[1], flush=True)
    options = ServerOptions(shutdown_timeout=shutdown_timeout_s, uvicorn_log_level="warning")
    return serve(app_for(engine), options, [socket])


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
