"""What sequences that follow grammars may cost each other."""

from __future__ import annotations

import pytest
from llguidance import LLTokenizer

from noria.structured.matchers import Matchers

AMBIGUOUS = (
    'start: s\ns: s s | /[a-z ]/ | ""'  # the ways to read n letters as it grow with n, and so does each mask
)
LETTER = ord("a")


def test_a_sequence_that_holds_steps_up_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that suit a vocabulary of bytes, whose masks take a thousandth of a real one's."""
    monkeypatch.setattr("noria.structured.matchers._SLOW_S", -1.0)
    monkeypatch.setattr("noria.structured.matchers._MASK_LIMIT_S", 0.003)
    matchers = Matchers(LLTokenizer("byte"))
    matchers.add("lark", AMBIGUOUS, {"slow": ()})
    matchers.add("regex", "[a-z]*", {"quick": ()})
    news: tuple[int, ...] = ()
    for _ in range(1000):
        filled = matchers.fill({"slow": news, "quick": news})
        news = (LETTER,)
        if filled.errors:
            break
    assert list(filled.errors) == ["slow"]
    assert "to decide" in filled.errors["slow"]
