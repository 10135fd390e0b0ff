"""The tokenizer from GGUF metadata (keys `tokenizer.*`)."""

from __future__ import annotations

import numpy as np

from noria.config.errors import ModelError
from noria.config.tokenizer import GgufVocabulary, TokenizerSpec
from noria.loaders.fields import Fields, shorten

_KINDS = ("gpt2", "llama")
_TEMPLATE = "tokenizer.chat_template"
_NO_TOKEN = 2**32 - 1  # some files store -1 in an unsigned field
_CONTROL = 3

# Tokens that end a text or a turn; a file names at most three of them by id.
_END_IDS = ("eos", "eot", "eom")
_END_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
    }
)
_SPECIAL_TOKENS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",  # the format's own spelling
    "mask_token": "mask",
}
# Byte-level tokenizers put a first token before a prompt only where their model was trained so.
_PRE_WITH_BOS = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"})


def tokenizer_spec(fields: Fields) -> TokenizerSpec:
    """fields: the file's metadata. Raises ModelError."""
    vocabulary = _vocabulary(fields)
    num_tokens = len(vocabulary.tokens)
    add_bos = vocabulary.kind == "llama" or vocabulary.pre in _PRE_WITH_BOS
    special = {name: _token_id(fields, short, num_tokens) for name, short in _SPECIAL_TOKENS.items()}
    return TokenizerSpec(
        vocabulary=vocabulary,
        bos_token_id=special["bos_token"],
        eos_token_ids=_end_token_ids(fields, vocabulary),
        add_bos=fields.flag("tokenizer.ggml.add_bos_token", add_bos),
        add_eos=fields.flag("tokenizer.ggml.add_eos_token", False),
        special_tokens=tuple(
            (name, vocabulary.tokens[token_id]) for name, token_id in special.items() if token_id is not None
        ),
        chat_templates=_chat_templates(fields),
    )


def _vocabulary(fields: Fields) -> GgufVocabulary:
    kind = fields.text("tokenizer.ggml.model")
    if kind not in _KINDS:
        raise ModelError(
            f"{fields.source}: the tokenizer {shorten(kind)} is not supported; supported are {', '.join(_KINDS)}"
        )
    tokens = _strings(fields, "tokenizer.ggml.tokens")
    if not tokens:
        raise fields.fault("tokenizer.ggml.tokens", "a list of at least one token")
    return GgufVocabulary(
        kind=kind,
        tokens=tokens,
        scores=_numbers(fields, "tokenizer.ggml.scores", "fiu", len(tokens), is_required=kind == "llama"),
        token_types=_numbers(fields, "tokenizer.ggml.token_type", "iu", len(tokens), is_required=False),
        merges=_strings(fields, "tokenizer.ggml.merges") if kind == "gpt2" else (),
        pre=fields.text("tokenizer.ggml.pre", ""),
        add_space_prefix=fields.flag("tokenizer.ggml.add_space_prefix", kind == "llama"),
        unknown_token_id=_token_id(fields, "unknown", len(tokens)),
    )


def _strings(fields: Fields, key: str) -> tuple[str, ...]:
    value = fields.values.get(key)
    # Elements are all of one type; an empty array may be declared of any.
    if not isinstance(value, (list, np.ndarray)) or not all(isinstance(text, str) for text in value[:1]):
        raise fields.fault(key, "an array of strings")
    return tuple(value)


def _numbers(fields: Fields, key: str, dtypes: str, count: int, is_required: bool) -> tuple:
    """dtypes: allowed numpy kinds ("i" signed, "u" unsigned, "f" float)."""
    value = fields.values.get(key)
    if value is None and not is_required:
        return ()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in dtypes or len(value) != count:
        raise fields.fault(key, f"an array of {count} numbers, one for each token")
    if not np.isfinite(value).all():
        raise fields.fault(key, "an array of finite numbers")
    return tuple(value.tolist())


def _token_id(fields: Fields, short: str, num_tokens: int) -> int | None:
    key = f"tokenizer.ggml.{short}_token_id"
    token_id = fields.optional_integer(key, -1, _NO_TOKEN)
    if token_id is None or token_id in (-1, _NO_TOKEN):
        return None
    if token_id >= num_tokens:
        raise fields.fault(key, f"one of the {num_tokens} tokens (0 to {num_tokens - 1})")
    return token_id


def _end_token_ids(fields: Fields, vocabulary: GgufVocabulary) -> tuple[int, ...]:
    """The named ones first, then control tokens that are known to end a turn."""
    named = [_token_id(fields, short, len(vocabulary.tokens)) for short in _END_IDS]
    ids = [token_id for token_id in named if token_id is not None]
    types = vocabulary.token_types
    for token_id, text in enumerate(vocabulary.tokens):
        if text in _END_TEXTS and (not types or types[token_id] == _CONTROL):
            ids.append(token_id)
    return tuple(dict.fromkeys(ids))


def _chat_templates(fields: Fields) -> tuple[tuple[str, str], ...]:
    templates = {}
    default = fields.optional_text(_TEMPLATE)
    if default is not None:
        templates["default"] = default
    for key in fields.values:
        if key.startswith(f"{_TEMPLATE}."):
            templates[key[len(_TEMPLATE) + 1 :]] = fields.text(key)
    return tuple(templates.items())
