"""The HTTP/1.1 protocol with bounds on a request's headers, which its base class reads without any."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noria.server.limits import Limits


class HeadersTooLarge(Exception):
    """Raised inside the parser, which answers 400 and closes the connection."""


def bounded_http_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """A protocol class that refuses more than limits.max_headers headers or limits.max_header_bytes of them."""

    class BoundedHttpProtocol(HttpToolsProtocol):
        num_header_bytes = 0

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.num_header_bytes = 0

        def on_url(self, url: bytes) -> None:
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count(len(name) + len(value))
            if len(self.headers) >= limits.max_headers:
                raise HeadersTooLarge
            super().on_header(name, value)

        def _count(self, num_bytes: int) -> None:
            self.num_header_bytes += num_bytes
            if self.num_header_bytes > limits.max_header_bytes:
                raise HeadersTooLarge

    return BoundedHttpProtocol
