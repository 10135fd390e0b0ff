"""Public traces are read as what they are, traps included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noria.bench.texts import read_sharegpt
from noria.bench.trace_files import describe, lines_of
from noria.bench.traces import Trace, Units, read_trace, sniff
from noria.config.errors import ConfigError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURSTGPT_NEW = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5.5,a,3.2,ChatGPT,472,18,490,Conversation log
9,b,1,ChatGPT,7,9,16,Conversation log
118,a,12.5,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1000, "output_length": 52, "hash_ids": [0, 1]}
{"timestamp": 3052, "input_length": 1024, "output_length": 26, "hash_ids": [0, 2]}
{"timestamp": 3500, "input_length": 1536, "output_length": 3, "hash_ids": [0, 1, 3]}
"""


def written(folder: Path, text: str, name: str = "trace") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def rows(trace: Trace) -> list[tuple[float, int, int]]:
    return [(round(row.time_s, 6), row.num_prompt, row.num_output) for row in trace.rows]


def test_azures_seven_digits_of_a_second_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE)
    assert sniff(path) == "azure"
    assert rows(read_trace(path, "azure")) == [(0.0, 4808, 10), (0.052, 3180, 8), (0.098189, 110, 27)]


def test_azures_later_form_with_an_offset_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE_2024)
    assert rows(read_trace(path, "azure")) == [(0.0, 2162, 5), (0.007405, 2399, 6)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_byte_order_mark_and_foreign_line_ends_do_not_matter(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"\xef\xbb\xbf" + AZURE.replace("\n", newline).encode())
    assert sniff(str(path)) == "azure"
    assert len(read_trace(str(path), "azure").rows) == 3


def test_burstgpt_is_read_by_names_and_leaves_failures_out(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, BURSTGPT), "burstgpt")
    assert rows(trace) == [(0.0, 472, 18), (113.0, 417, 276)]
    assert trace.num_left_out == 1


def test_burstgpts_sessions_are_turns_of_conversations(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, BURSTGPT_NEW), "burstgpt")
    assert [(row.session, row.turn) for row in trace.rows] == [("a", 0), ("b", 0), ("a", 1)]


def test_mooncakes_hashes_become_shared_prefixes_and_its_time_is_milliseconds(tmp_path: Path) -> None:
    path = written(tmp_path, MOONCAKE)
    assert sniff(path) == "mooncake"
    trace = read_trace(path, "mooncake")
    assert rows(trace) == [(0.0, 1000, 52), (3.052, 1024, 26), (3.5, 1536, 3)]
    first, second, third = ([(piece.name, piece.num_tokens) for piece in row.pieces] for row in trace.rows)
    assert first == [("hash 0", 512), ("hash 1", 488)]
    assert second == [("hash 0", 512), ("hash 2", 512)]
    assert third == [("hash 0", 512), ("hash 1", 512), ("hash 3", 512)]


def test_a_wrong_block_size_is_said_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"line 1: 2 hash_ids cannot be a prompt of 1000 tokens in blocks of 16"
    ):
        read_trace(written(tmp_path, MOONCAKE), "mooncake", Units(block_size=16))


def test_units_of_mooncake_can_be_stated(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, MOONCAKE), "mooncake", Units(time_unit_s=1.0))
    assert trace.rows[-1].time_s == 3500


def run_log(*lines: dict[str, Any]) -> str:
    """As `noria serve --run-log` writes it: the settings, with blocks of 16 tokens, and these lines."""
    head = {"type": "engine", "version": "1", "config": {"model": {}, "cache": {"block_size": 16}}}
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (head, *lines))


def ended(at_s: float, num_prompt: int, num_output: int, *digests: str) -> dict[str, Any]:
    record = {"accepted_s": at_s, "num_prompt_tokens": num_prompt, "num_output_tokens": num_output}
    return {"type": "ended", "record": record, "max_tokens": 99, "digests": digests}


def test_a_run_log_is_a_trace_whose_prompts_share_the_blocks_that_they_shared(tmp_path: Path) -> None:
    step = {"type": "step", "record": {"num_output_tokens": 7}}
    # They end in another order than they came in; the third digest of the first is of its answer.
    lines = [
        ended(107.5, 40, 3, "a", "c"),
        step,
        ended(100.0, 35, 30, "a", "b", "d"),
        ended(101.0, 16, 1, "a"),
    ]
    path = written(tmp_path, run_log(*lines))
    assert sniff(path) == "run-log"
    trace = read_trace(path, "run-log")
    assert rows(trace) == [(0.0, 35, 30), (1.0, 16, 1), (7.5, 40, 3)]
    first, second, third = ([(piece.name, piece.num_tokens) for piece in row.pieces] for row in trace.rows)
    assert first == [("hash a", 16), ("hash b", 16), ("row 4", 3)]
    assert second == [("hash a", 16)]
    assert third == [("hash a", 16), ("hash c", 16), ("row 2", 8)]
    assert dict(describe(trace))["shared prefixes"] == f"{32 / 91:.1%} of prompt tokens"


def test_a_run_log_leaves_out_who_got_no_token(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, run_log(ended(1, 5, 0), ended(2, 5, 4))), "run-log")
    assert (rows(trace), trace.num_left_out) == ([(0.0, 5, 4)], 1)


def test_a_run_log_that_is_still_written_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    whole, half = run_log(ended(1, 5, 4)), json.dumps(ended(2, 5, 4))
    for length in range(len(half) + 1):
        trace = read_trace(written(tmp_path, whole + half[:length]), "run-log")
        assert rows(trace) == [(0.0, 5, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (run_log({"type": "ended"}), "line 2: there is no 'record'"),
        (run_log(ended(1, 5, 4), {"no": "type"}), "line 3: there is no 'type'"),
        (run_log({"type": "ended", "record": [], "digests": []}), "line 2: list indices"),
        ('{"type":"step"}\n', "line 1: a run log begins with the engine's settings"),
        ('{"type":"engine","config":{}}\n', "line 1: there is no 'cache'"),
        (run_log(), "holds no request"),
        (run_log() + "nonsense\n", "line 2: "),
    ],
)
def test_what_is_no_run_log_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trace(written(tmp_path, text), "run-log")


@pytest.mark.parametrize("form", ["azure", "mooncake", "noria"])
def test_what_is_written_reads_back_the_same(tmp_path: Path, form: str) -> None:
    trace = read_trace(written(tmp_path, MOONCAKE), "mooncake")
    path = written(tmp_path, "\n".join(lines_of(trace, form, 512)) + "\n", "again")
    again = read_trace(path, sniff(path))
    assert rows(again) == rows(trace)


@pytest.mark.parametrize(("form", "num_shared"), [("noria", 512 + 512 + 488), ("mooncake", 512 + 512)])
def test_what_is_written_shares_the_same_prefixes(tmp_path: Path, form: str, num_shared: int) -> None:
    """In Mooncake's form only whole blocks can be shared."""
    trace = read_trace(written(tmp_path, MOONCAKE), "mooncake")
    assert dict(describe(trace))["shared prefixes"] == "42.5% of prompt tokens"
    path = written(tmp_path, "\n".join(lines_of(trace, form, 512)) + "\n", "again")
    shared = dict(describe(read_trace(path, sniff(path))))["shared prefixes"]
    assert shared == f"{num_shared / 3560:.1%} of prompt tokens"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a,b\n1,2\n", "azure", "has no column TIMESTAMP, ContextTokens, GeneratedTokens; it has a, b"),
        (AZURE + "yesterday,1,2\n", "azure", "line 5: "),
        (AZURE.split("\n")[0] + "\n", "azure", "holds no request"),
        ('{"timestamp": 1}\n', "mooncake", "line 1: there is no 'hash_ids'"),
        ("[1]\n", "mooncake", "line 1: not a JSON object"),
        ("{\n", "mooncake", "line 1: "),
    ],
)
def test_what_is_no_such_trace_is_refused_with_the_line(
    tmp_path: Path, text: str, kind: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trace(written(tmp_path, text), kind)


def test_an_unknown_file_names_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="azure, burstgpt, mooncake, noria, run-log, sharegpt"):
        sniff(written(tmp_path, "hello\n"))
    with pytest.raises(ConfigError, match="cannot be read"):
        sniff(str(tmp_path / "nowhere"))


SHAREGPT = [
    {
        "id": "1",
        "conversations": [{"from": "human", "value": "a b c d e"}, {"from": "gpt", "value": "f g h i"}],
    },
    {"id": "2", "conversations": [{"from": "human", "value": "only a question, never answered"}]},
    {
        "id": "3",
        "conversations": [{"from": "human", "value": "too short"}, {"from": "gpt", "value": "a b c d"}],
    },
    {
        "id": "4",
        "conversations": [{"from": "human", "value": "w " * 90}, {"from": "gpt", "value": "a b c d"}],
    },
    {
        "id": "5",
        "conversations": [{"from": "human", "value": "k l m n"}, {"from": "gpt", "value": "o p q r s t"}],
    },
]


def count_words(text: str) -> int:
    return len(text.split())


def test_sharegpt_gives_first_questions_with_the_lengths_of_their_answers(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(SHAREGPT))
    assert sniff(path) == "sharegpt"
    planned = list(read_sharegpt(path, None, 64, count_words))
    assert [(one.index, one.text, one.num_output) for one in planned] == [
        (0, "a b c d e", 4),
        (1, "k l m n", 6),
    ]
    assert len(list(read_sharegpt(path, 1, 64, count_words))) == 1


def test_sharegpt_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --tokenizer"):
        list(read_sharegpt(written(tmp_path, "[]"), None, None, None))
