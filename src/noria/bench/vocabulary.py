"""Tokens that prompts are made of: common words, none of them special to a model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from noria.bench.pieces import Piece

# The ids of a text, without any that the tokenizer adds.
Encode = Callable[[str], Sequence[int]]

_WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "or",
    "had",
    "an",
    "they",
    "which",
    "one",
    "you",
    "were",
    "her",
    "all",
    "she",
    "there",
    "would",
    "their",
    "we",
    "him",
    "been",
    "has",
    "when",
    "who",
    "will",
    "more",
    "no",
    "if",
    "out",
    "so",
    "said",
    "what",
    "up",
    "its",
    "about",
    "into",
    "than",
    "them",
    "can",
    "only",
    "other",
    "new",
    "some",
    "could",
    "time",
    "these",
    "two",
    "may",
    "then",
    "do",
    "first",
    "any",
    "my",
    "now",
    "such",
    "like",
    "our",
    "over",
    "man",
    "me",
    "even",
    "most",
    "made",
    "after",
    "also",
    "did",
    "many",
    "before",
    "must",
    "through",
    "back",
    "years",
    "where",
    "much",
    "your",
    "way",
    "well",
    "down",
    "should",
    "because",
    "each",
    "just",
    "those",
    "people",
    "how",
    "too",
    "little",
    "state",
    "good",
    "very",
    "make",
    "world",
    "still",
    "own",
    "see",
    "men",
    "work",
    "long",
    "get",
    "here",
    "between",
    "both",
    "life",
    "being",
    "under",
    "never",
    "day",
    "same",
    "another",
    "know",
    "while",
    "last",
    "might",
    "us",
    "great",
    "old",
    "year",
    "off",
    "come",
    "since",
    "against",
    "go",
    "came",
    "right",
    "used",
    "take",
    "three",
    "water",
    "river",
    "wheel",
    "turn",
    "stone",
    "field",
    "light",
    "sound",
    "house",
    "place",
    "hand",
    "part",
    "small",
    "found",
    "every",
    "thought",
    "head",
    "left",
    "might",
    "near",
    "few",
    "along",
    "until",
    "always",
    "night",
    "number",
]
WORDS = tuple(dict.fromkeys(_WORDS))
_FEWEST_WORDS = 16
_CACHED_PIECES = 4096


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """ids: harmless tokens, int32; empty where no tokenizer was to be had. words: each is one token after a space,
    if `words_are_tokens`."""

    ids: NDArray[np.int32]
    words: tuple[str, ...]
    words_are_tokens: bool


def vocabulary_of(encode: Encode | None) -> Vocabulary:
    if encode is None:
        return Vocabulary(np.zeros(0, np.int32), WORDS, words_are_tokens=False)
    ids = sorted(set(encode(_text(WORDS))))
    words = tuple(_single_tokens(encode, WORDS))
    if len(words) < _FEWEST_WORDS:
        return Vocabulary(np.array(ids, np.int32), WORDS, words_are_tokens=False)
    return Vocabulary(np.array(ids, np.int32), words, words_are_tokens=True)


def _single_tokens(encode: Encode, words: Sequence[str]) -> list[str]:
    """Those that are one token each, found by halves: few calls where nearly all are."""
    if len(encode(_text(words))) == len(words):
        return list(words)
    if len(words) == 1:
        return []
    middle = len(words) // 2
    return [*_single_tokens(encode, words[:middle]), *_single_tokens(encode, words[middle:])]


def _text(words: Sequence[str]) -> str:
    return "".join(f" {word}" for word in words)


class Writer:
    """Writes the tokens of pieces: a piece's are a function of the seed and its name alone."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self.vocabulary = vocabulary
        self._seed = seed
        # Pieces that many prompts share are asked for again and again, and drawing them takes longer than sending.
        self._draws = lru_cache(maxsize=_CACHED_PIECES)(self._draw)

    def ids(self, pieces: Sequence[Piece]) -> NDArray[np.int32]:
        ids = self.vocabulary.ids
        return np.concatenate([ids[self._draws(piece.name, piece.num_tokens) % len(ids)] for piece in pieces])

    def text(self, pieces: Sequence[Piece]) -> str:
        """One word a token, each with a space before it."""
        words = self.vocabulary.words
        picks = [self._draws(piece.name, piece.num_tokens) % len(words) for piece in pieces]
        return _text([words[pick] for pick in np.concatenate(picks)])

    def _draw(self, name: str, count: int) -> NDArray[np.int64]:
        digest = hashlib.blake2b(f"{self._seed} {name}".encode(), digest_size=8).digest()
        random = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
        return random.integers(0, 2**31, count)
