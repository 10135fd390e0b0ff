"""What is read at a glance is what a parser reads, and what is not certain is left to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.server.limits import Limits
from noria.server.whole_request import whole_request

BODY = b'{"prompt": "turn"}'


def post(*lines: bytes, target: bytes = b"/v1/completions", body: bytes = BODY) -> bytes:
    head = [b"POST %b HTTP/1.1" % target, b"Host: x", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join((*head, b"", body))


class Heard:
    """What a parser tells of a request."""

    def __init__(self, data: bytes) -> None:
        self.target = self.body = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.num_ended = 0
        self.keeps_alive = False
        self.parser: Any = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip()))

    def on_headers_complete(self) -> None:
        self.keeps_alive = self.parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.num_ended += 1


def check(data: bytes) -> bool:
    """Whether it is read at a glance; then the parser must read the same."""
    whole = whole_request(data, Limits())
    if whole is None:
        return False
    heard = Heard(data)
    assert heard.num_ended == 1
    assert heard.parser.get_method() == b"POST"
    assert heard.parser.get_http_version() == "1.1"
    assert heard.target == whole.target
    assert httptools.parse_url(whole.target).path.decode() == whole.path
    assert dict(heard.headers) == whole.headers
    assert heard.body == whole.body
    assert heard.keeps_alive == whole.keeps_alive
    return True


@pytest.mark.parametrize(
    "data",
    [
        post(),
        post(body=b""),
        post(b"Connection: close"),
        post(b"connection: Keep-Alive"),
        post(b"Authorization: Bearer sk-wheel", b"X-Request-Timeout:  2.5 ", b"Empty:"),
        post(target=b"/v1/completions?a=b%20c&d"),
        post(b"name: caf\xc3\xa9"),
    ],
)
def test_a_plain_request_is_read_as_the_parser_reads_it(data: bytes) -> None:
    assert check(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        post()[:-1],  # the rest is on its way
        post() + b"P",  # another follows
        post().replace(b"POST", b"GET"),
        post().replace(b"1.1", b"1.0"),
        post().replace(b"\r\n", b"\n"),
        b"\r\n" + post(),
        post(target=b"/v1/%63ompletions"),
        post(target=b"http://x/v1/completions"),
        post(target=b"/v1/completions#there"),
        post(b"Content-Length: 18"),
        post(b"Accept: a", b"accept: b"),
        post(b"Transfer-Encoding: chunked"),
        post(b"Expect: 100-continue"),
        post(b"Connection: Upgrade", b"Upgrade: h2c"),
        post(b"Connection: close, te"),
        post(b"a b: c"),
        post(b": c"),
        post(b"folded: a", b" b"),
        post(b"a: \x00"),
        post(b"a: b\rc: d"),
        post().replace(b"h: 18", b"h: +18"),
        post().replace(b"h: 18", b"h: "),
        # Lengths that a hasty reader takes for 18, or cannot take at all.
        post().replace(b"h: 18", b"h: " + b"0" * 18 + b"18"),
        post().replace(b"h: 18", b"h: " + b"0" * 18 + b"185"),
        post().replace(b"h: 18", b"h: 18" + b"0" * 5000),
        post().replace(b"h: 18", b"h: " + b"0" * 20 + b"9" * 5000),
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(data: bytes) -> None:
    assert whole_request(data, Limits()) is None


def test_heads_beyond_the_limits_are_left_to_the_parser() -> None:
    data = post(b"a: b", b"c: d")
    assert whole_request(data, replace(Limits(), max_headers=4)) is not None
    assert whole_request(data, replace(Limits(), max_headers=3)) is None
    head = len(data) - len(BODY)
    assert whole_request(data, replace(Limits(), max_header_bytes=head)) is not None
    assert whole_request(data, replace(Limits(), max_header_bytes=head - 1)) is None


@given(
    st.integers(0, len(post()) - 1),
    st.one_of(
        st.binary(max_size=3), st.sampled_from([b"\r\n", b": ", b"a: b\r\n", b" ", b"%", b"?", b"#", b"9"])
    ),
    st.integers(0, 3),
)
def test_a_damaged_request_is_read_as_the_parser_reads_it_or_not_at_all(
    place: int, inserted: bytes, num_removed: int
) -> None:
    data = post(b"Connection: close", target=b"/v1/completions?a=b")
    check(data[:place] + inserted + data[place + num_removed :])
