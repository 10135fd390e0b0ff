from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from noria.tokenize.stops import StopMatcher
from support_stops import expected_output

SMALL_TEXT = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)


def run(matcher: StopMatcher, pieces: list[str]) -> tuple[list[str], str | None]:
    parts = [matcher.feed(piece) for piece in pieces]
    if matcher.stop is None:
        parts.append(matcher.flush())
    return parts, matcher.stop


def pieces_of(text: str, cuts: set[int]) -> list[str]:
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@given(SMALL_TEXT, STOPS, st.booleans(), st.sets(st.integers(1, 23)))
def test_output_and_stop_are_those_of_the_whole_text_however_it_is_cut(text, stops, include_stop, cuts):
    parts, stop = run(StopMatcher(stops, include_stop), pieces_of(text, cuts))
    assert ("".join(parts), stop) == expected_output(text, stops, include_stop)


@given(SMALL_TEXT, STOPS)
def test_text_waits_only_while_it_may_still_become_a_stop_string(text, stops):
    matcher, given_out = StopMatcher(stops), ""
    for position, character in enumerate(text, 1):
        given_out += matcher.feed(character)
        if matcher.stop is not None:
            return
        seen = text[:position]
        waiting = max(n for stop in stops for n in range(len(stop)) if seen.endswith(stop[:n]))
        assert given_out == seen[: position - waiting]


@given(SMALL_TEXT, SMALL_TEXT, STOPS, st.booleans(), st.sets(st.integers(1, 23)))
def test_a_stop_string_may_begin_in_protected_text_but_not_end_in_it(head, tail, stops, include_stop, cuts):
    matcher = StopMatcher(stops, include_stop)
    given_out = "".join(matcher.feed_protected(piece) for piece in pieces_of(head, cuts))
    parts, stop = run(matcher, pieces_of(tail, cuts))
    expected = expected_output(head + tail, stops, include_stop, num_protected=len(head))
    assert (given_out + "".join(parts), stop) == expected


def test_every_way_to_cut_a_text_in_three_gives_the_same():
    text = "one ENDING two END three"
    for first in range(len(text)):
        for second in range(first, len(text)):
            pieces = [text[:first], text[first:second], text[second:]]
            parts, stop = run(StopMatcher(["END two", "two END"]), pieces)
            assert ("".join(parts), stop) == ("one ENDING ", "two END")


def test_the_first_completed_stop_string_wins_even_if_another_began_earlier():
    matcher = StopMatcher(["abcd", "b"])
    assert run(matcher, ["xabcd"]) == (["xa"], "b")


def test_of_two_completed_at_once_the_longer_is_taken_out():
    assert run(StopMatcher(["d", "bcd"]), ["abcd"]) == (["a"], "bcd")


def test_what_follows_a_match_is_dropped():
    matcher = StopMatcher(["."])
    assert [matcher.feed("a.b"), matcher.feed("c"), matcher.feed_protected("d")] == ["a", "", ""]


def test_a_head_that_never_completes_is_given_out_at_the_end():
    matcher = StopMatcher(["###"])
    assert [matcher.feed("a#"), matcher.feed("#"), matcher.flush()] == ["a", "", "##"]


def test_without_stop_strings_text_passes_at_once():
    matcher = StopMatcher([])
    assert [matcher.feed("ab"), matcher.feed_protected("c"), matcher.flush()] == ["ab", "c", ""]


def test_a_very_long_stop_string_costs_nothing_until_it_is_met():
    stop = "a" * 1_000_000
    matcher = StopMatcher([stop])
    assert [matcher.feed("aab"), matcher.feed("b" * 10)] == ["aab", "b" * 10]
