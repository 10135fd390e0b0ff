"""Texts that tokenizers find hard."""

from hypothesis import strategies as st

_HARD_PIECES = st.sampled_from(
    [
        *("the", " wheel", "Don't", "'LL", "they've", "print(i)", "ab", "aaaa"),
        *(" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u200b", "\x00", "\x85"),
        *("0", "7", "1234567", "٣", "½", "Ⅷ"),
        *("é", "e\u0301", "ß", "ſ", "Å", "Ω", "кошка", "水車", "ไทย", "한국", "\u0915\u094d\u0937"),
        *("🙂", "👩‍👩‍👧", "🇫🇷", "\ufffd", "\ufeff", "▁", "Ġ", "##", "</w>", "<0x0A>"),
        *("<|start|>", "<|end|>", "<think>", "<s>", "</s>", "<unk>", "<|", "|>"),
    ]
)
# Whole words in odd company, and characters nobody thought of.
TEXTS = st.one_of(st.lists(_HARD_PIECES, max_size=8).map("".join), st.text(max_size=20))
