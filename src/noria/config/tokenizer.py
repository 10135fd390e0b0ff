"""What a checkpoint says of its tokenizer: plain data, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """A tokenizer as GGUF metadata describes it (keys `tokenizer.ggml.*`).

    kind: the file's `tokenizer.ggml.model`: "gpt2" is byte-level BPE, "llama" sentencepiece-style.
    token_types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    """

    kind: str
    tokens: tuple[str, ...]
    scores: tuple[float, ...] = ()
    token_types: tuple[int, ...] = ()
    merges: tuple[str, ...] = ()  # "left right"
    pre: str = ""  # `tokenizer.ggml.pre`
    add_space_prefix: bool = True
    unknown_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Exactly one of tokenizer_json (the text of a tokenizer.json) and vocabulary is set.

    add_bos, add_eos: put them around a plain prompt; None leaves it to tokenizer.json's own post-processor.
    special_tokens: text of the named tokens ("bos_token", "eos_token", ...) that a chat template may use.
    chat_templates: name -> Jinja source; "default" is the one to use.
    response_template: JSON text of what the checkpoint says of how answers are written; None: nothing.
    has_response_schema: it says so in the older way, by a JSON schema with patterns over whole texts.
    content_format: what they take a message's content to be: string | openai (a list of parts) | auto.
    """

    tokenizer_json: str | None = None
    vocabulary: GgufVocabulary | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    add_eos: bool | None = None
    special_tokens: tuple[tuple[str, str], ...] = ()
    chat_templates: tuple[tuple[str, str], ...] = ()
    content_format: str = "auto"
    response_template: str | None = None
    has_response_schema: bool = False
