"""What the server listens on: a port or a Unix domain socket, and the certificate that it shows there."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Any

from noria.config.connections import ConnectionOptions
from noria.config.errors import ConfigError
from noria.config.serving import ServerOptions

BACKLOG = 2048


def bind(options: ServerOptions) -> socket.socket:
    """The address that the options ask for, taken; nobody can connect yet. `release` it in the end.

    Raises ConfigError when it cannot be had.
    """
    path = options.connections.uds
    return bind_port(options.host, options.port) if path is None else _bind_path(path)


def release(bound: socket.socket, options: ServerOptions) -> None:
    """Close a socket of `bind`, if nobody has, and take away what it left in the file system."""
    bound.close()
    if options.connections.uds is not None:
        with contextlib.suppress(OSError):
            os.unlink(options.connections.uds)


def bind_port(host: str, port: int) -> socket.socket:
    """A TCP port, taken. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _bind(bound, (host, port), f"{host} port {port}", "--host and --port")
    return bound


def _bind_path(path: str) -> socket.socket:
    """A path, taken, in place of the socket of a server that is gone."""
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _bind(bound, path, path, "--uds")
    return bound


def _bind(bound: socket.socket, address: Any, shown: str, flags: str) -> None:
    try:
        bound.bind(address)
        bound.setblocking(False)
    except (OSError, OverflowError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {shown}: {reason}; choose another with {flags}") from error


def address_of(bound: socket.socket, connections: ConnectionOptions) -> str:
    """Where clients find the server, for people to read."""
    name = bound.getsockname()
    scheme = "http" if connections.ssl_certfile is None else "https"
    if isinstance(name, str):
        return f"{scheme} on the socket {name}"
    host, port = name[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"


def check_certificates(connections: ConnectionOptions) -> None:
    """Raise ConfigError for certificates and keys that cannot be served with."""
    if connections.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_ca_certs"):
            if getattr(connections, name) is not None:
                raise ConfigError(f"{name} goes with ssl_certfile, which is not given")
        return
    import ssl  # slow to import, and seldom needed

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = [
        f"ssl_certfile {connections.ssl_certfile}",
        f"ssl_keyfile {connections.ssl_keyfile or '(the same)'}",
    ]
    try:
        # A password at all keeps the library from asking for one at the terminal.
        password = connections.ssl_keyfile_password or ""
        context.load_cert_chain(connections.ssl_certfile, connections.ssl_keyfile, password)
        if connections.ssl_ca_certs is not None:
            files = [f"ssl_ca_certs {connections.ssl_ca_certs}"]
            context.load_verify_locations(connections.ssl_ca_certs)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot serve HTTPS with {' and '.join(files)}: {reason}") from error


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return  # bind says that something is there
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
