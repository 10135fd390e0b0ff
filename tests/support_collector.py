"""A collector of OpenTelemetry data."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer


class Collector(HTTPServer):
    """Takes OTLP over HTTP on a loopback port."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
