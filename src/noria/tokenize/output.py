"""The text side of one generated sequence: detokenising, stop strings, token counts and text offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noria.sampling.params import SamplingParams
from noria.tokenize.detokenize import IncrementalDetokenizer
from noria.tokenize.stops import StopMatcher
from noria.tokenize.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What one feed added to the output.

    text: now certain; never ends inside a character or inside what may still become a stop string.
    num_tokens: how many of the fed tokens belong to the output: all, unless a stop string ended it.
    stop: the stop string that ended the output in this feed.
    text_offsets: for each of those tokens, the characters of output text decoded before it. Text that a stop
        string takes back later is counted, since an offset may have been sent by then.
    """

    text: str
    num_tokens: int
    stop: str | None = None
    text_offsets: tuple[int, ...] = ()


class OutputStream:
    """Takes the ids of one sequence as the engine sends them, gives its text.

    The same ids give the same text, token count and stop however they are cut into feeds.

    - A stop string ends the output at the token that completes it; whatever is fed afterwards is ignored, and the
      caller cancels the sequence in the engine (`stopped`).
    - A stop string must be completed after the min_tokens-th token.
    - A stop token counts as a token and gives no text, unless include_stop_str_in_output (and then special tokens
      still give none under skip_special_tokens).
    """

    def __init__(
        self, tokenizer: Tokenizer, params: SamplingParams, shown_ids: frozenset[int] = frozenset()
    ) -> None:
        """shown_ids: special tokens that give text all the same, for whoever reads it further."""
        self._params = params
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, params.skip_special_tokens, continues=True, shown_ids=shown_ids
        )
        self._matcher = StopMatcher(params.stop, params.include_stop_str_in_output)
        self._num_decoded = 0  # characters, those of a stop string included
        self._stop_token_id: int | None = None
        self.num_tokens = 0
        self.is_finished = False

    @property
    def stopped(self) -> bool:
        """A stop string ended the output."""
        return self._matcher.stop is not None

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string, or the one of stop_token_ids, that ended the output; None for any other end."""
        if self._matcher.stop is not None:
            return self._matcher.stop
        return self._stop_token_id if self._stop_token_id in self._params.stop_token_ids else None

    def feed(
        self, token_ids: Sequence[int], stop_token_id: int | None = None, finished: bool = False
    ) -> TextPiece:
        """Take the next ids.

        stop_token_id: the last of token_ids, when the engine ended the sequence at it.
        finished: no ids will follow; what was held back is given out.
        """
        if self.is_finished:
            return TextPiece("", 0)
        offsets: list[int] = []
        texts: list[str] = []
        is_last = finished or stop_token_id is not None
        is_silent = stop_token_id is not None and not self._params.include_stop_str_in_output
        num_decodable = len(token_ids) - 1 if is_silent else len(token_ids)
        for index, token_id in enumerate(token_ids):
            offsets.append(self._num_decoded)
            self.num_tokens += 1
            if index < num_decodable:
                texts.append(self._match(self._detokenizer.feed((token_id,))))
            if self.stopped:
                break
        if is_last and not self.stopped:
            self._stop_token_id = stop_token_id
            texts.append(self._match(self._detokenizer.flush()))
            texts.append(self._matcher.flush())
        self.is_finished = is_last or self.stopped
        return TextPiece("".join(texts), len(offsets), self._matcher.stop, tuple(offsets))

    def _match(self, text: str) -> str:
        self._num_decoded += len(text)
        if self.num_tokens <= self._params.min_tokens:
            return self._matcher.feed_protected(text)
        return self._matcher.feed(text)
