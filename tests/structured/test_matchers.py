"""What sequences that follow grammars may cost each other."""

from __future__ import annotations

import numpy as np
import pytest
from llguidance import LLTokenizer

from noria.structured.mask_memory import MaskMemory, open_memory
from noria.structured.matchers import Matchers
from noria.structured.reading import source_of
from noria.structured.wire import Fill, Filled

AMBIGUOUS = (
    'start: s\ns: s s | /[a-z ]/ | ""'  # the ways to read n letters as it grow with n, and so does each mask
)
LETTER = ord("a")


def memory_for(matchers: Matchers, num_rows: int) -> MaskMemory:
    memory = MaskMemory(open_memory(), matchers.row_bytes)
    memory.grow(num_rows)
    return memory


def test_rows_are_filled_from_the_first_one_on_and_memory_may_grow_meanwhile() -> None:
    matchers = Matchers(LLTokenizer("byte"))
    file = open_memory()
    asks, fills = (MaskMemory(file, matchers.row_bytes) for _ in range(2))
    for name, text in {"a": "[ab]", "d": "[de]"}.items():
        matchers.add(source_of("regex", text), {name: ()})
    asks.grow(1)
    matchers.fill(Fill(0, {"a": ()}), fills)
    first = asks.rows(1)
    asks.grow(1000)
    told = matchers.fill(Fill(900, {"nobody": (), "d": ()}), fills)
    assert told == Filled({}, ("nobody",))
    rows = asks.rows(1000)
    assert allowed_in(first[: matchers.row_bytes]) == set(b"ab")
    assert allowed_in(rows[901 * matchers.row_bytes : 902 * matchers.row_bytes]) == set(b"de")


def allowed_in(row: bytes) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")).tolist())


def test_a_sequence_that_holds_steps_up_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that suit a vocabulary of bytes, whose masks take a thousandth of a real one's."""
    monkeypatch.setattr("noria.structured.matchers._SLOW_S", -1.0)
    monkeypatch.setattr("noria.structured.matchers._MASK_LIMIT_S", 0.003)
    matchers = Matchers(LLTokenizer("byte"))
    matchers.add(source_of("lark", AMBIGUOUS), {"slow": ()})
    matchers.add(source_of("regex", "[a-z]*"), {"quick": ()})
    memory = memory_for(matchers, 2)
    news: tuple[int, ...] = ()
    for _ in range(1000):
        filled = matchers.fill(Fill(0, {"slow": news, "quick": news}), memory)
        news = (LETTER,)
        if filled.errors:
            break
    assert list(filled.errors) == ["slow"]
    assert "to decide" in filled.errors["slow"]
