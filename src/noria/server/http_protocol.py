"""The HTTP/1.1 protocol with bounds on a request's headers, which its base class reads without any."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noria.server.limits import Limits


class HeadersTooLarge(Exception):
    """Raised inside the parser, which answers 400 and closes the connection."""


def bounded_http_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """A protocol class that refuses more than limits.max_headers headers or limits.max_header_bytes of them."""

    class BoundedHttpProtocol(HttpToolsProtocol):
        num_header_bytes = 0  # of the parts that the parser has handed over
        num_unparsed_bytes = 0  # received since the head began, while it has not ended
        is_in_head = True

        def data_received(self, data: bytes) -> None:
            # The parser keeps an unfinished name or value to itself and copies it with every piece: an endless one
            # would cost ever more, so it is counted here.
            if self.is_in_head and self.num_unparsed_bytes > limits.max_header_bytes:
                self.send_400_response("The headers are too large.")
                return
            super().data_received(data)
            self.num_unparsed_bytes = self.num_unparsed_bytes + len(data) if self.is_in_head else 0

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.num_header_bytes = self.num_unparsed_bytes = 0
            self.is_in_head = True

        def on_headers_complete(self) -> None:
            self.is_in_head = False
            super().on_headers_complete()

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
