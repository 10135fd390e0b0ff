"""Tokenizers with the decoders that a tokenizer.json may name besides byte-level and sentencepiece ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from support_vocabularies import CORPUS, SPECIAL_TOKENS


def _train(encoder: tokenizers.Tokenizer, trainer: object) -> tokenizers.Tokenizer:
    encoder.train_from_iterator(CORPUS * 3, trainer)
    return encoder


@lru_cache(maxsize=1)
def word_piece() -> tokenizers.Tokenizer:
    encoder = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    encoder.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    encoder.decoder = decoders.WordPiece()
    special = ["[UNK]", *SPECIAL_TOKENS]
    return _train(
        encoder, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )


@lru_cache(maxsize=1)
def unigram() -> tokenizers.Tokenizer:
    encoder = tokenizers.Tokenizer(models.Unigram())
    encoder.pre_tokenizer = pre_tokenizers.Metaspace()
    encoder.decoder = decoders.Metaspace()
    special = ["<unk>", *SPECIAL_TOKENS]
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    return _train(encoder, trainer)


@lru_cache(maxsize=1)
def word_suffix() -> tokenizers.Tokenizer:
    encoder = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    encoder.pre_tokenizer = pre_tokenizers.Whitespace()
    encoder.decoder = decoders.BPEDecoder()
    special = ["<unk>", *SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, end_of_word_suffix="</w>", show_progress=False
    )
    return _train(encoder, trainer)


@lru_cache(maxsize=1)
def whole_words() -> tokenizers.Tokenizer:
    """No decoder at all: tokens are joined by spaces."""
    encoder = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    encoder.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<unk>", *SPECIAL_TOKENS]
    return _train(encoder, trainers.WordLevelTrainer(special_tokens=special, show_progress=False))


@lru_cache(maxsize=1)
def replaced_byte_level() -> tokenizers.Tokenizer:
    """A byte-level decoder with something behind it, so that only the library knows what it does."""
    encoder = tokenizers.Tokenizer(models.BPE())
    encoder.normalizer = normalizers.Replace("*", "+")
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("+", "*")])
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return _train(encoder, trainer)


WORD_MODELS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "word piece": word_piece,
    "unigram": unigram,
    "word suffix": word_suffix,
    "whole words": whole_words,
    "replaced byte level": replaced_byte_level,
}
