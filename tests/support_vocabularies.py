"""Small tokenizers, trained on a few lines of text, and the GGUF vocabularies a converter would make of them."""

from __future__ import annotations

import io
import json
from functools import lru_cache

import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from noria.config.tokenizer import GgufVocabulary, TokenizerSpec
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer

CORPUS = (
    "The water wheel turns and the buckets fill; the buckets empty and the water wheel turns again.",
    "Don't stop: it's 3 o'clock, we'll see 1234567890 buckets, they've said I'm late, aren't we?",
    "    indented code:\n\tfor i in range(10):\n\t\tprint(i, 'x')\n\n\nreturn   value",
    "Größe, façade, naïve, Ångström, ΑΒΓ αβγ, кошка, 水車は回る、桶は満ちる。 물레방아가 돈다.",
    "🙂 👩‍👩‍👧 🇫🇷 🙂🙂 and more words: wheel, wheels, wheeled; turning, turned, turns.",
    "aaaa aaaaaa abab ababab  bb  bbbb ... ---- ==== (((( )))) {} [] <> // \\\\ ##",
)
SPECIAL_TOKENS = ("<|end|>", "<|start|>")
USER_DEFINED_TOKEN = "<think>"


def train_byte_level(num_tokens: int = 480) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer split like SmolLM's. Ids 0 and 1 are SPECIAL_TOKENS."""
    encoder = tokenizers.Tokenizer(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    encoder.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    encoder.train_from_iterator(CORPUS * 3, trainer)
    return encoder


@lru_cache(maxsize=1)
def byte_level_reference() -> tokenizers.Tokenizer:
    """train_byte_level's tokenizer with USER_DEFINED_TOKEN added."""
    encoder = train_byte_level()
    encoder.add_tokens([tokenizers.AddedToken(USER_DEFINED_TOKEN, normalized=False)])
    return encoder


def gguf_of_byte_level(encoder: tokenizers.Tokenizer, pre: str = "smollm") -> GgufVocabulary:
    """What a GGUF file says of a byte-level tokenizer."""
    model = json.loads(encoder.to_str())["model"]
    added = encoder.get_added_tokens_decoder()
    by_id = sorted((token_id, token) for token, token_id in encoder.get_vocab().items())
    return GgufVocabulary(
        kind="gpt2",
        tokens=tuple(token for _, token in by_id),
        token_types=tuple(_token_type(added.get(i)) for i, _ in by_id),
        merges=tuple(" ".join(merge) for merge in model["merges"]),
        pre=pre,
    )


def _token_type(added: tokenizers.AddedToken | None) -> int:
    if added is None:
        return 1
    return 3 if added.special else 4


@lru_cache(maxsize=1)
def byte_level_tokenizer() -> Tokenizer:
    """Noria's tokenizer for the vocabulary of byte_level_reference; eos is id 0, bos id 1."""
    vocabulary = gguf_of_byte_level(byte_level_reference())
    return build_tokenizer(TokenizerSpec(vocabulary=vocabulary, bos_token_id=1, eos_token_ids=(0,)))


@lru_cache(maxsize=1)
def sentencepiece_reference() -> sentencepiece.SentencePieceProcessor:
    """A sentencepiece BPE model like Llama's: byte fallback, no normalisation, a space before the text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS * 3 for line in text.split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=520,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=[USER_DEFINED_TOKEN],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def gguf_of_sentencepiece(processor: sentencepiece.SentencePieceProcessor) -> GgufVocabulary:
    """What a GGUF file says of a sentencepiece model."""
    ids = range(processor.get_piece_size())
    return GgufVocabulary(
        kind="llama",
        tokens=tuple(processor.id_to_piece(i) for i in ids),
        scores=tuple(processor.get_score(i) for i in ids),
        token_types=tuple(_piece_type(processor, i) for i in ids),
        unknown_token_id=processor.unk_id(),
    )


def _piece_type(processor: sentencepiece.SentencePieceProcessor, token_id: int) -> int:
    if processor.is_unknown(token_id):
        return 2
    if processor.is_control(token_id):
        return 3
    if processor.is_byte(token_id):
        return 6
    return 4 if processor.id_to_piece(token_id) == USER_DEFINED_TOKEN else 1


@lru_cache(maxsize=1)
def sentencepiece_tokenizer() -> Tokenizer:
    """Noria's tokenizer for sentencepiece_reference; bos is id 1, eos id 2."""
    vocabulary = gguf_of_sentencepiece(sentencepiece_reference())
    return build_tokenizer(TokenizerSpec(vocabulary=vocabulary, bos_token_id=1, eos_token_ids=(2,)))


def json_tokenizer(encoder: tokenizers.Tokenizer, **spec: object) -> Tokenizer:
    """Noria's tokenizer for the tokenizer.json of `encoder`."""
    return build_tokenizer(TokenizerSpec(tokenizer_json=encoder.to_str(), **spec))
