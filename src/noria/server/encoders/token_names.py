"""How tokens and their log-probabilities are written in replies."""

from __future__ import annotations

from typing import Any

from noria.core.plan import TokenLogprobs
from noria.tokenize.tokenizer import Tokenizer

_LOWEST = -9999.0  # JSON has no infinity


def finite(logprob: float) -> float:
    """The log-probability as JSON can hold it."""
    return max(logprob, _LOWEST)


class TokenNames:
    """Names tokens by their text, or as `token_id:N`, which is exact where several tokens share a text."""

    def __init__(self, tokenizer: Tokenizer, as_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self._tokenizer.token_text(token_id)

    def chat_entry(self, logprobs: TokenLogprobs) -> dict[str, Any]:
        """An item of `logprobs.content` of a chat choice."""
        entry = self._chat_token(logprobs.token_id, logprobs.logprob)
        entry["top_logprobs"] = [self._chat_token(token_id, value) for token_id, value in logprobs.top]
        return entry

    def top_by_name(self, logprobs: TokenLogprobs) -> dict[str, float]:
        """The alternatives of a text completion's token, and the token itself.

        Of tokens with one name the likeliest counts: whether a token was the likeliest can be seen by comparing
        it with the highest value.
        """
        by_name: dict[str, float] = {}
        for token_id, value in (*logprobs.top, (logprobs.token_id, logprobs.logprob)):
            name = self.name(token_id)
            by_name[name] = max(by_name.get(name, _LOWEST), value)
        return by_name

    def prompt_entry(self, logprobs: TokenLogprobs) -> dict[str, Any]:
        """An item of `prompt_logprobs`: by token id, the alternatives and the token itself."""
        entry = {
            str(token_id): self._prompt_token(token_id, value, rank)
            for rank, (token_id, value) in enumerate(logprobs.top, start=1)
        }
        entry[str(logprobs.token_id)] = self._prompt_token(logprobs.token_id, logprobs.logprob, logprobs.rank)
        return entry

    def _chat_token(self, token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self.name(token_id),
            "logprob": finite(logprob),
            "bytes": list(self._tokenizer.token_bytes(token_id)),
        }

    def _prompt_token(self, token_id: int, logprob: float, rank: int) -> dict[str, Any]:
        return {
            "logprob": finite(logprob),
            "rank": rank,
            "decoded_token": self._tokenizer.token_text(token_id),
        }
