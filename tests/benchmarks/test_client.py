from __future__ import annotations

import socket

import pytest
from benchmarks.peers.client import Exchange, play, read
from benchmarks.peers.traffic import EngineFailed, Group, Request

from support_fake_peer import HEAD, chunked, serving


def requests(count: int) -> tuple[Request, ...]:
    return tuple(Request(" ".join(["word"] * (i + 1)), max_tokens=2 + i % 3) for i in range(count))


def test_a_closed_loop_keeps_its_concurrency_and_answers_every_request_in_order() -> None:
    done = []
    with serving() as peer:
        peer.gathers = 3
        replies = play(peer.port, [Group(requests(9), 3)], lambda: done.append(1), limit_s=60)
    assert peer.most_at_once == 3
    assert [(r.group, r.index, r.num_prompt, r.num_output) for r in replies] == [
        (0, i, i + 1, 2 + i % 3) for i in range(9)
    ]
    assert [reply.text for reply in replies[:3]] == ["a b ", "a b c ", "a b c d "]
    assert len(done) == 9


def test_every_token_has_its_time_and_the_end_of_the_text_is_none() -> None:
    with serving() as peer:
        [reply] = play(peer.port, [Group((Request("x", 5),), 1)], lambda: None, limit_s=60)
    moments = [reply.sent_s, *reply.token_s]
    assert len(reply.token_s) == 5
    assert moments == sorted(moments)
    assert moments[0] >= 0


def test_groups_run_beside_each_other_and_a_later_one_begins_later() -> None:
    groups = [Group(requests(4), 4), Group(requests(2), 1, start_after_s=0.1)]
    with serving() as peer:
        replies = play(peer.port, groups, lambda: None, limit_s=60)
    assert [(r.group, r.index) for r in replies] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert replies[4].sent_s > 0.09
    assert replies[5].sent_s >= replies[4].end_s


def test_requests_are_greedy_of_exact_length_and_streamed_with_usage() -> None:
    with serving() as peer:
        play(peer.port, [Group((Request("x y", 3),), 1)], lambda: None, limit_s=60)
    assert peer.bodies == [
        {
            "model": "model",
            "prompt": "x y",
            "max_tokens": 3,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_a_refusal_says_what_the_server_said() -> None:
    with serving() as peer:
        peer.refusal = b'HTTP/1.1 400 Bad Request\r\ncontent-length: 14\r\n\r\n{"error":"no"}'
        with pytest.raises(EngineFailed, match=r'(?s)request 0 was not answered with a stream: .*"no"'):
            play(peer.port, [Group(requests(1), 1)], lambda: None, limit_s=60)


def test_a_stream_that_breaks_off_is_a_failure() -> None:
    with serving() as peer:
        peer.breaks_off_after = 1
        with pytest.raises(EngineFailed, match="without usage"):
            play(peer.port, [Group(requests(1), 1)], lambda: None, limit_s=60)


def test_no_server_is_a_failure() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(EngineFailed, match="connection failed"):
            play(probe.getsockname()[1], [Group(requests(1), 1)], lambda: None, limit_s=60)


def test_an_error_within_a_stream_is_a_failure() -> None:
    raw = HEAD + chunked(b'data: {"error": {"message": "out of room"}}\n\n') + b"0\r\n\r\n"
    with pytest.raises(EngineFailed, match=r"request 7 broke off: .*out of room"):
        read(Exchange(0.0, [(1.0, raw)]), 0.0, group=0, index=7)


def test_an_event_has_come_when_its_last_byte_has() -> None:
    first = HEAD + chunked(b'data: {"choices": [{"text": "a"}]}\n\n')
    second = chunked(b'data: {"choices": [{"text": "b", "finish_reason": "length"}]}\n\ndata: {"choi')
    third = chunked(b'ces": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\n') + b"0\r\n\r\n"
    raw = first + second + third
    cut = len(first) - 9
    exchange = Exchange(
        10.0, [(11.0, raw[:cut]), (12.0, raw[cut : len(first) + 5]), (14.0, raw[len(first) + 5 :])]
    )
    reply = read(exchange, origin_s=10.0, group=0, index=0)
    assert (reply.token_s, reply.ttft_s, reply.gaps_s) == ((2.0, 4.0), 2.0, [2.0])
    assert (reply.text, reply.num_prompt, reply.num_output) == ("ab", 1, 2)
