import random

from hypothesis import given
from hypothesis import strategies as st

from noria.sampling.params import SamplingParams
from noria.tokenize.detokenize import IncrementalDetokenizer
from noria.tokenize.output import OutputStream
from support_stops import expected_output
from support_vocabularies import byte_level_reference, byte_level_tokenizer, sentencepiece_tokenizer

EOS = 0
IDS = st.lists(st.integers(2, 479), max_size=24)
STOPS = st.lists(
    st.sampled_from(["e", "he", "th", "\ufffd", " ", "the wheel", "🙂"]), max_size=3, unique=True
)


def ids_of(text: str) -> list[int]:
    return byte_level_tokenizer().encode(text, add_special_tokens=False)


def stream(**params) -> OutputStream:
    return OutputStream(byte_level_tokenizer(), SamplingParams(max_tokens=None, **params))


def run(output: OutputStream, pieces: list[list[int]], stop_token_id: int | None = None):
    """Feed as a server does, until the output is finished; all that a client could see."""
    texts, offsets, num_tokens, stop = [], [], 0, None
    for index, ids in enumerate(pieces or [[]]):
        is_last = index >= len(pieces) - 1
        piece = output.feed(ids, stop_token_id if is_last else None, finished=is_last)
        texts.append(piece.text)
        offsets.extend(piece.text_offsets)
        num_tokens += piece.num_tokens
        stop = stop or piece.stop
    assert num_tokens == output.num_tokens == len(offsets)
    assert output.is_finished
    return "".join(texts), num_tokens, stop, output.stop_reason, offsets


def cut(ids: list[int], seed: int) -> list[list[int]]:
    pieces, source = [], random.Random(seed)
    while ids:
        size = source.randint(0, 3)
        pieces, ids = [*pieces, ids[:size]], ids[size:]
    return pieces


@given(
    ids=IDS,
    stops=STOPS,
    seed=st.integers(0, 2**32),
    min_tokens=st.integers(0, 6),
    includes=st.booleans(),
    ends=st.booleans(),
)
def test_text_count_stop_and_offsets_are_those_of_one_feed_however_ids_are_cut(
    ids, stops, seed, min_tokens, includes, ends
):
    params = {
        "stop": stops,
        "min_tokens": min_tokens,
        "include_stop_str_in_output": includes,
        "skip_special_tokens": False,
    }
    ids, stop_token_id = ([*ids, EOS], EOS) if ends else (ids, None)
    whole = run(stream(**params), [ids], stop_token_id)
    assert run(stream(**params), cut(ids, seed), stop_token_id) == whole


@given(ids=IDS, stops=STOPS, min_tokens=st.integers(0, 6))
def test_the_output_ends_at_the_token_that_completes_a_stop_string(ids, stops, min_tokens):
    detokenizer = IncrementalDetokenizer(byte_level_tokenizer())
    pieces = [detokenizer.feed([i]) for i in ids]
    text = "".join(pieces) + detokenizer.flush()
    num_protected = len("".join(pieces[:min_tokens])) if min_tokens < len(ids) else len(text)
    shown, stop = expected_output(text, stops, include_stop=False, num_protected=num_protected)
    end = len(shown) + len(stop or "")
    num_tokens = next((n for n in range(len(ids)) if len("".join(pieces[:n])) >= end > 0), len(ids))
    if stop is None:
        num_tokens = len(ids)
    assert run(stream(stop=stops, min_tokens=min_tokens), [[i] for i in ids])[:3] == (shown, num_tokens, stop)


def test_without_stop_strings_the_text_is_the_decoded_ids():
    ids = ids_of("Größe 🙂 水車")
    assert run(stream(), [[i] for i in ids])[:3] == ("Größe 🙂 水車", len(ids), None)


def test_a_stop_string_that_begins_and_ends_inside_tokens_is_found():
    ids = ids_of("the water wheel turns")
    text, num_tokens, stop, reason, _ = run(stream(stop="ter whe"), [[i] for i in ids])
    assert (text, stop, reason) == ("the wa", "ter whe", "ter whe")
    assert "ter whe" in byte_level_tokenizer().decode(ids[:num_tokens])
    assert "ter whe" not in byte_level_tokenizer().decode(ids[: num_tokens - 1])


def test_the_stop_string_stays_in_the_output_when_asked_for():
    ids = ids_of("the water wheel turns")
    assert run(stream(stop="ter whe", include_stop_str_in_output=True), [ids])[0] == "the water whe"


def test_after_a_stop_string_further_ids_are_ignored():
    output = stream(stop="water")
    first = output.feed(ids_of("the water wheel"))
    assert (first.text, first.stop, output.stopped) == ("the ", "water", True)
    later = output.feed(ids_of(" turns"), finished=True)
    assert (later.text, later.num_tokens, later.text_offsets) == ("", 0, ())


def test_a_stop_token_counts_but_shows_no_text():
    ids = [*ids_of("the end"), EOS]
    output = stream(skip_special_tokens=False)
    piece = output.feed(ids, stop_token_id=EOS, finished=True)
    assert (piece.text, piece.num_tokens, piece.stop, output.stop_reason) == ("the end", len(ids), None, None)


def test_a_stop_token_shows_its_text_when_stops_are_included():
    wheel = ids_of(" wheel")
    ids = [*ids_of("the"), *wheel]
    output = stream(stop_token_ids=(wheel[-1],), include_stop_str_in_output=True)
    assert run(output, [ids], wheel[-1])[0] == "the wheel"
    special = stream(include_stop_str_in_output=True)
    assert run(special, [[*ids, EOS]], EOS)[0] == "the wheel"
    shown = stream(include_stop_str_in_output=True, skip_special_tokens=False)
    assert run(shown, [[*ids, EOS]], EOS)[0] == "the wheel<|end|>"


def test_the_stop_reason_names_a_stop_token_of_the_request_but_not_the_models_own():
    ids = ids_of("the wheel")
    assert run(stream(stop_token_ids=(ids[-1],)), [ids], ids[-1])[3] == ids[-1]
    assert run(stream(), [[*ids, EOS]], EOS)[3] is None


def test_stop_strings_count_only_when_completed_after_min_tokens():
    ids = [i for word in ("the", " the", " the") for i in ids_of(word)]
    per_word = len(ids_of(" the"))
    text, num_tokens, stop, _, _ = run(stream(stop="the", min_tokens=len(ids_of("the"))), [[i] for i in ids])
    assert (text, num_tokens, stop) == ("the ", len(ids_of("the")) + per_word, "the")


def test_what_was_held_back_is_given_out_at_the_end():
    output = stream(stop="turns again")
    pieces = [output.feed(ids_of("it turns")), output.feed([], finished=True)]
    assert [piece.text for piece in pieces] == ["it ", "turns"]


def test_an_output_cut_off_inside_a_character_ends_in_one_replacement_character():
    ids = [byte_level_reference().token_to_id(c) for c in ("ð", "Ł", "ĺ")]
    one_by_one = stream()
    assert [one_by_one.feed([i]).text for i in ids[:2]] == ["", ""]
    assert one_by_one.feed(ids[2:], finished=True).text == "\ufffd"
    assert run(stream(), [ids])[0] == "\ufffd"


def test_offsets_point_at_each_tokens_text():
    tokenizer = byte_level_tokenizer()
    ids = ids_of("the wheel: 🙂!")
    text, _, _, _, offsets = run(stream(), [[i] for i in ids])
    for index, (token_id, offset) in enumerate(zip(ids, offsets, strict=True)):
        assert text[:offset] == tokenizer.decode(ids[:index]).rstrip("\ufffd")
        shown = tokenizer.token_text(token_id)
        assert "\ufffd" in shown or text[offset:].startswith(shown)


def test_an_id_beyond_the_tokenizers_vocabulary_counts_and_shows_nothing():
    ids = [*ids_of("a"), 100_000, *ids_of("b")]
    assert run(stream(), [ids])[:2] == ("ab", len(ids))


def test_an_output_keeps_the_space_before_its_first_word():
    tokenizer = sentencepiece_tokenizer()
    output = OutputStream(tokenizer, SamplingParams())
    assert output.feed(tokenizer.encode("the", add_special_tokens=False), finished=True).text == " the"
