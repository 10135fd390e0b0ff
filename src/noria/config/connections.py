"""What a user may ask of the server's connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from noria.config.errors import ConfigError
from noria.config.option import HTTP_NAME, ORIGIN, PATH, SWITCH, Several, check_values, option


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What clients connect to besides a TCP port, and which pages of others may."""

    TITLE: ClassVar[str] = "Connections"

    uds: str | None = option(
        None,
        "Listen on this Unix domain socket instead of a port.",
        PATH,
        default_words="a port",
    )
    root_path: str | None = option(
        None,
        "Path that a proxy puts in front of the server's own, with or without taking it off again.",
        default_words="none",
    )
    ssl_certfile: str | None = option(
        None,
        "Serve HTTPS with this certificate chain (PEM).",
        PATH,
        default_words="HTTP",
    )
    ssl_keyfile: str | None = option(
        None,
        "The private key of ssl_certfile (PEM).",
        PATH,
        default_words="in ssl_certfile",
    )
    ssl_keyfile_password: str | None = option(
        None, "What the private key is encrypted with.", secret=True, default_words="nothing"
    )
    ssl_ca_certs: str | None = option(
        None,
        "Certificates (PEM) of authorities; only clients with a certificate that one of them signed are served.",
        PATH,
        default_words="any client",
    )
    allowed_origins: tuple[str, ...] = option(
        (),
        "Web pages that may use the server from a browser, by origin (https://example.org); * allows all. A page "
        "that the server itself serves needs no leave.",
        ORIGIN,
        several=Several.SPREAD,
        default_words="none",
    )
    allowed_methods: tuple[str, ...] = option(
        ("*",),
        "Methods that pages of allowed_origins may use.",
        HTTP_NAME,
        several=Several.SPREAD,
        default_words="all",
    )
    allowed_headers: tuple[str, ...] = option(
        ("*",),
        "Request headers that pages of allowed_origins may set.",
        HTTP_NAME,
        several=Several.SPREAD,
        default_words="all",
    )
    allow_credentials: bool = option(
        False, "Let pages of allowed_origins send the cookies and keys that a browser holds.", SWITCH
    )
    disable_fastapi_docs: bool = option(False, "Do not answer /docs, /redoc and /openapi.json.", SWITCH)

    def __post_init__(self) -> None:
        check_values(self)
        if self.root_path is not None and not (self.root_path.startswith("/") and self.root_path.strip("/")):
            raise ConfigError(f"root_path must begin with / and name something, got {self.root_path!r}")
