"""Sockets that clients may connect to before the server takes them."""

from __future__ import annotations

import socket

from noria.server.sockets import BACKLOG, bind_port


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    listener = bind_port(host, port)
    listener.listen(BACKLOG)
    return listener
