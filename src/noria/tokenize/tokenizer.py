"""The tokenizer: text to ids, ids to text, and chats to ids. The one place that decides on special tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tokenizers

from noria.config.errors import ModelError, RequestError
from noria.config.tokenizer import GgufVocabulary, TokenizerSpec
from noria.tokenize.backend import Backend
from noria.tokenize.byte_level import build_byte_level
from noria.tokenize.chat_template import CONTENT_FORMATS, ChatOptions, ChatTemplates
from noria.tokenize.detokenize import IncrementalDetokenizer
from noria.tokenize.json_backend import build_from_json
from noria.tokenize.pieces import TokenPieces
from noria.tokenize.sentencepiece import build_sentencepiece

_BUILDERS: dict[str, Callable[[GgufVocabulary], Backend]] = {
    "gpt2": build_byte_level,
    "llama": build_sentencepiece,
}


def build_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """Raises ModelError for a vocabulary that is unknown, inconsistent or unreadable."""
    if spec.tokenizer_json is not None and spec.vocabulary is None:
        return Tokenizer(build_from_json(spec.tokenizer_json), spec)
    if spec.tokenizer_json is not None or spec.vocabulary is None:
        raise ModelError("the checkpoint must have one tokenizer: a tokenizer.json or a GGUF vocabulary")
    kind = spec.vocabulary.kind
    if kind not in _BUILDERS:
        known = ", ".join(sorted(_BUILDERS))
        raise ModelError(f"tokenizer.ggml.model is {kind!r}, a tokenizer that is not known; known: {known}")
    return Tokenizer(_BUILDERS[kind](spec.vocabulary), spec)


class Tokenizer:
    """Built by build_tokenizer. Its methods may be called from any thread.

    vocab_size: one more than the highest id, added tokens included. (A model's own vocabulary may be padded.)
    special_ids: control tokens; left out of text under skip_special_tokens.
    special_tokens: text of the named ones ("bos_token", ...), as far as the checkpoint names them.
    response_template, has_response_schema: as the spec has them.
    """

    def __init__(self, backend: Backend, spec: TokenizerSpec) -> None:
        self._encoder = backend.encoder
        self.pieces: TokenPieces = backend.pieces
        self.vocab_size = backend.num_tokens
        self.bos_token_id = spec.bos_token_id
        self.eos_token_ids = spec.eos_token_ids
        named_ids = {*self.eos_token_ids, *([] if self.bos_token_id is None else [self.bos_token_id])}
        for token_id in sorted(named_ids):
            if not self._is_known(token_id):
                raise ModelError(
                    f"the start or end token has id {token_id}; the tokenizer has {self.vocab_size} tokens"
                )
        self.special_ids = backend.special_ids | named_ids
        self._frame = _read_frame(backend, spec)
        self.special_tokens = dict(spec.special_tokens)
        self.response_template = spec.response_template
        self.has_response_schema = spec.has_response_schema
        self._chat_templates = ChatTemplates(
            dict(spec.chat_templates), self.special_tokens, content=CONTENT_FORMATS[spec.content_format]
        )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text. Special tokens written out in it are recognised.

        add_special_tokens: put around it what the checkpoint puts around a plain prompt (a start token, say).
        Raises RequestError for a text with lone surrogates, which no tokenizer can take.
        """
        uses_own_frame = add_special_tokens and self._frame is None
        try:
            ids = self._encoder.encode(text, add_special_tokens=uses_own_frame).ids
        except TypeError as error:  # how the library says that a str is not valid Unicode
            raise RequestError(_describe_surrogate(text)) from error
        if self._frame is None or not add_special_tokens:
            return ids
        prefix, suffix = self._frame
        return [*prefix, *ids, *suffix]

    def encode_within(self, text: str, max_tokens: int) -> list[int]:
        """As encode, with what is put around it; the end of a text that comes to more is left out."""
        ids = self.encode(text)
        if len(ids) <= max_tokens:
            return ids
        bare = self.encode(text, add_special_tokens=False)
        before, after = self._around(ids, bare)
        return [*before, *bare[: max(0, max_tokens - len(before) - len(after))], *after]

    def encode_pair(
        self, first: str, second: str, max_tokens: int | None = None
    ) -> tuple[tuple[int, ...], int]:
        """Ids of two texts that are read together, as the checkpoint joins them, and how many of them are the first
        one's; 0 where it does not tell them apart. The end of the second is left out of what comes to more.
        """
        parts = [self._plain(text) for text in (first, second)]
        joined = self._join(*parts)
        excess = 0 if max_tokens is None else len(joined.ids) - max_tokens
        if excess > 0:
            parts[1].truncate(max(0, len(parts[1].ids) - excess))
            joined = self._join(*parts)
        kinds = joined.type_ids
        num_first = kinds.index(1) if 1 in kinds else 0
        if self._frame is None:
            return tuple(joined.ids), num_first
        prefix, suffix = self._frame
        return (*prefix, *joined.ids, *suffix), num_first

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text that begins with the first id. Raises RequestError for ids outside the vocabulary."""
        for token_id in token_ids:
            if not self._is_known(token_id):
                raise RequestError(
                    f"token id {token_id} is outside the vocabulary, which ends at {self.vocab_size - 1}",
                    "tokens",
                )
        detokenizer = IncrementalDetokenizer(self, skip_special_tokens)
        return detokenizer.feed(token_ids) + detokenizer.flush()

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text that has begun, byte for byte; empty for unknown ids."""
        return self.pieces.bytes_of(token_id)

    def token_text(self, token_id: int) -> str:
        """The token for display; parts of a character show as U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")

    @property
    def bos_token(self) -> str | None:
        return self._named("bos_token", self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The first of them, as it is written."""
        return self._named("eos_token", next(iter(self.eos_token_ids), None))

    @property
    def adds_bos_token(self) -> bool:
        """Whether a plain prompt begins with the start token of itself."""
        return self.bos_token_id is not None and self.encode("")[:1] == [self.bos_token_id]

    @property
    def chat_template(self) -> str | None:
        """The source of the template that chats are rendered with."""
        return self._chat_templates.default_source

    @property
    def tool_template(self) -> str | None:
        """The source of the template that chats with tools are rendered with."""
        return self._chat_templates.tool_source

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be rendered without a template in the request."""
        return bool(self._chat_templates.names)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None) -> str:
        """The chat as one text, special tokens written out. Raises RequestError (see ChatTemplates.render)."""
        return self._chat_templates.render(messages, options or ChatOptions())

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: ChatOptions | None = None,
        add_special_tokens: bool = False,
    ) -> list[int]:
        """Ids of the rendered chat.

        The template writes the start token itself where the model wants one, so none is put in front of it.
        Raises RequestError for messages that cannot be rendered.
        """
        return self.encode(self.render_chat(messages, options), add_special_tokens)

    def _plain(self, text: str) -> tokenizers.Encoding:
        try:
            return self._encoder.encode(text, add_special_tokens=False)
        except TypeError as error:
            raise RequestError(_describe_surrogate(text)) from error

    def _join(self, first: tokenizers.Encoding, second: tokenizers.Encoding) -> tokenizers.Encoding:
        return self._encoder.post_process(first, second, add_special_tokens=self._frame is None)

    @staticmethod
    def _around(ids: list[int], bare: list[int]) -> tuple[list[int], list[int]]:
        """What is put before and behind a text."""
        num_added = len(ids) - len(bare)
        start = next((i for i in range(num_added + 1) if ids[i : i + len(bare)] == bare), 0)
        return ids[:start], ids[start + len(bare) :]

    def _named(self, name: str, token_id: int | None) -> str | None:
        written = self.special_tokens.get(name)
        return written if written or token_id is None else self.token_text(token_id)

    def _is_known(self, token_id: int) -> bool:
        return 0 <= token_id < self.vocab_size


def _read_frame(backend: Backend, spec: TokenizerSpec) -> tuple[list[int], list[int]] | None:
    """(ids before, ids after) a plain prompt; None leaves both to the encoder's post-processor."""
    if spec.add_bos is None and spec.add_eos is None and backend.adds_bos is None:
        return None
    if spec.add_bos and spec.bos_token_id is None:
        raise ModelError("the checkpoint asks for a start token before prompts (add_bos) but names none")
    if spec.add_eos and not spec.eos_token_ids:
        raise ModelError("the checkpoint asks for an end token after prompts (add_eos) but names none")
    adds_bos = backend.adds_bos if spec.add_bos is None else spec.add_bos
    prefix = [spec.bos_token_id] if adds_bos and spec.bos_token_id is not None else []
    return prefix, list(spec.eos_token_ids[:1]) if spec.add_eos else []


def _describe_surrogate(text: str) -> str:
    position = next((i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff"), 0)
    return f"the text is not valid Unicode: character {position} is the lone surrogate U+{ord(text[position]):04X}"
