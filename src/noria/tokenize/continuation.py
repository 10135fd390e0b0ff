"""Ending a prompt exactly at the text of its final message, so that the model goes on with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noria.config.errors import RequestError


@dataclass(frozen=True, slots=True)
class Continuation:
    """A chat whose final text carries a mark; the rendered prompt is cut there.

    The mark keeps a template from trimming the end of the text, and shows where the text ends in a prompt in
    which it may occur more than once.
    """

    messages: list[dict[str, Any]]
    text: str
    mark: str

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> Continuation:
        """messages: prepared, not empty; left alone. Raises RequestError when the final one has no text."""
        final = dict(messages[-1])
        content = final.get("content")
        mark = _unused_mark(messages)
        if isinstance(content, str):
            text = content
            final["content"] = content + mark
        elif content:
            text = content[-1]["text"]
            final["content"] = [*content[:-1], {**content[-1], "text": text + mark}]
        else:
            raise RequestError(
                "continue_final_message is set, but the final message has no content to continue", "messages"
            )
        return cls([*messages[:-1], final], text, mark)

    def cut(self, prompt: str) -> str:
        """The rendered prompt up to the end of the final text, which it then ends with, white space included.

        Raises RequestError when the template leaves the text out or rewrites it.
        """
        end = prompt.rfind(self.mark)
        if end < 0:
            raise RequestError(
                "continue_final_message is set, but the chat template leaves the final message's text out",
                "messages",
            )
        prompt = prompt[:end].replace(self.mark, "")
        if prompt.endswith(self.text):
            return prompt
        trimmed = self.text.lstrip()
        if not prompt.endswith(trimmed):
            raise RequestError(
                "continue_final_message is set, but the chat template rewrites the final message's text, so the "
                "prompt cannot end with it",
                "messages",
            )
        return prompt[: len(prompt) - len(trimmed)] + self.text


def _unused_mark(messages: Sequence[Mapping[str, Any]]) -> str:
    """A plain word, so that no template takes it apart, that occurs in none of the messages."""
    used = json.dumps(messages, ensure_ascii=False, default=str)
    number = 0
    while f"NoriaGoesOnHere{number}" in used:
        number += 1
    return f"NoriaGoesOnHere{number}"
