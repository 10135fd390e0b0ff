"""A04: the head of a stop string that spans chunks had reached the client before the match was seen.

The kind: matching on text does not depend on where tokens or chunks are cut, and what only may become a stop string
is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support_http import Api, finish_of, joined, text_of

PROMPT = "Tell me about rivers and their wheels."
NUM_TOKENS = 60
BOTH = pytest.mark.parametrize("endpoint", ["chat", "text"])


@pytest.fixture(scope="module")
def pieces(smollm2: Api) -> dict[str, list[str]]:
    """By endpoint, the texts of the answer's tokens."""
    return {endpoint: list(_pieces(smollm2, endpoint)) for endpoint in ("chat", "text")}


def _pieces(api: Api, endpoint: str) -> Iterator[str]:
    answer = api.ask(endpoint, PROMPT, max_tokens=NUM_TOKENS, ignore_eos=True, return_token_ids=True)
    [choice] = answer["choices"]
    for token_id in choice["token_ids"]:
        yield api.text([token_id])
    assert "".join(api.text([token_id]) for token_id in choice["token_ids"]) == text_of(choice)


def stops_across_tokens(pieces: list[str]) -> list[str]:
    """Texts that begin inside a token and end inside a later one, all of them first met where they were taken."""
    whole = "".join(pieces)
    found = []
    for first in range(2, len(pieces) - 3, 4):
        begin = sum(map(len, pieces[:first])) + len(pieces[first]) // 2
        for more in (1, 3):
            end = sum(map(len, pieces[: first + more])) + max(1, len(pieces[first + more]) // 2)
            if whole.find(whole[begin:end]) == begin and end - begin > 1:
                found.append(whole[begin:end])
    return found[:6]


@BOTH
@pytest.mark.parametrize("included", [False, True])
def test_a_stop_string_cut_anywhere_ends_the_text_and_its_head_is_never_sent(
    smollm2: Api, pieces: dict[str, list[str]], endpoint: str, included: bool
) -> None:
    whole_text = "".join(pieces[endpoint])
    stops = stops_across_tokens(pieces[endpoint])
    assert len(stops) >= 5
    for stop in stops:
        fields = {
            "max_tokens": NUM_TOKENS,
            "ignore_eos": True,
            "stop": stop,
            "include_stop_str_in_output": included,
        }
        end = whole_text.index(stop) + (len(stop) if included else 0)
        whole = smollm2.ask(endpoint, PROMPT, **fields)["choices"][0]
        chunks = smollm2.stream(endpoint, PROMPT, **fields)
        assert text_of(whole) == joined(chunks) == whole_text[:end]
        assert (whole["finish_reason"], whole["stop_reason"]) == finish_of(chunks) == ("stop", stop)


@BOTH
def test_a_head_that_never_completes_is_not_lost(
    smollm2: Api, pieces: dict[str, list[str]], endpoint: str
) -> None:
    whole_text = "".join(pieces[endpoint])
    heads = [f"{stop}\0" for stop in stops_across_tokens(pieces[endpoint])]
    fields = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "stop": [*heads, f"{whole_text[-7:]}\0"]}
    chunks = smollm2.stream(endpoint, PROMPT, **fields)
    assert joined(chunks) == text_of(smollm2.ask(endpoint, PROMPT, **fields)["choices"][0]) == whole_text
    assert finish_of(chunks) == ("length", None)
