"""A05: emoji or accented letters turned into U+FFFD where their bytes lie in several tokens.

The kind: decoding piece by piece equals decoding at once, for any ids, and there is one rule for what is cut short.
"""

from __future__ import annotations

import pytest

from noria.tokenize.detokenize import IncrementalDetokenizer
from support_http import Api, joined, text_of

TEXTS = ("🙂🤖🧑‍🚀", "🇯🇵🇩🇪🏴‍☠️", "สวัสดีชาวโลก", "水が流れる。こんにちは", "Ünïcödé naïve Ærø")


@pytest.mark.parametrize("text", TEXTS)
def test_every_split_of_the_ids_decodes_to_the_text(smollm2: Api, text: str) -> None:
    tokenizer = smollm2.serving.tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert smollm2.text(ids) == text
    for first in range(len(ids) + 1):
        for second in range(first, len(ids) + 1):
            decoder = IncrementalDetokenizer(tokenizer)
            pieces = [decoder.feed(part) for part in (ids[:first], ids[first:second], ids[second:])]
            assert "".join([*pieces, decoder.flush()]) == text
            assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("endpoint", ["chat", "text"])
@pytest.mark.parametrize("text", TEXTS)
def test_an_answer_in_such_characters_is_the_same_streamed_and_whole_wherever_it_is_cut(
    smollm2: Api, endpoint: str, text: str
) -> None:
    """The model may write the tokens of these characters alone, in any order: it ends mid-character now and then."""
    ids = sorted(set(smollm2.tokens(text)))
    for num_tokens in (1, 2, 3, 5, 8):
        fields = {
            "max_tokens": num_tokens,
            "allowed_token_ids": ids,
            "return_token_ids": True,
            "ignore_eos": True,
        }
        choice = smollm2.ask(endpoint, text, **fields)["choices"][0]
        chunks = smollm2.stream(endpoint, text, **fields)
        assert len(choice["token_ids"]) == num_tokens
        assert joined(chunks) == text_of(choice) == smollm2.text(choice["token_ids"])
        for chunk in chunks[:-1]:  # the last may hold what can become nothing any more
            for part in chunk["choices"]:
                assert text_of(part).encode().decode() == text_of(part)


def test_text_that_is_no_text_streams_as_it_decodes(tiny: Api) -> None:
    fields = {"max_tokens": 200, "ignore_eos": True, "seed": 3, "temperature": 1, "return_token_ids": True}
    choice = tiny.ask("text", "the", **fields)["choices"][0]
    assert "\ufffd" in choice["text"]
    assert joined(tiny.stream("text", "the", **fields)) == choice["text"]
    decoder = IncrementalDetokenizer(tiny.serving.tokenizer, continues=True)
    assert decoder.feed(choice["token_ids"]) + decoder.flush() == choice["text"]
