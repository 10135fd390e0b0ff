"""Ending a prompt exactly at the text of its final message, so that the model goes on with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noria.config.errors import RequestError


@dataclass(frozen=True, slots=True)
class Continuation:
    """A chat whose final text carries marks; the rendered prompt is cut there.

    A mark behind the text keeps a template from trimming the text's end, and shows where the text is in a prompt
    in which it may occur more than once. White space at the text's beginning gets a mark in front as well; other
    texts do not, since a template may look at how a message begins.
    """

    messages: list[Mapping[str, Any]]
    text: str
    mark: str

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> Continuation:
        """messages: prepared, not empty; left alone. Raises RequestError when the final one has no content."""
        final = dict(messages[-1])
        content = final.get("content")
        if content is None:
            raise RequestError(
                "continue_final_message is set, but the final message has no content to continue", "messages"
            )
        mark = _unused_mark(messages)
        if isinstance(content, str):
            text = content
            final["content"] = _marked(text, mark)
        else:
            text = content[-1]["text"] if content else ""
            final["content"] = [*content[:-1], {"type": "text", "text": _marked(text, mark)}]
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
        marked = _marked(self.text, self.mark)
        prompt = prompt[: end + len(self.mark)]
        if not prompt.endswith(marked):
            raise RequestError(
                "continue_final_message is set, but the chat template rewrites the final message's text, so the "
                "prompt cannot end with it",
                "messages",
            )
        # A template may show the final text elsewhere too.
        return prompt[: len(prompt) - len(marked)].replace(self.mark, "") + self.text


def _marked(text: str, mark: str) -> str:
    return f"{mark if text[:1].isspace() else ''}{text}{mark}"


def _unused_mark(messages: Sequence[Mapping[str, Any]]) -> str:
    """A plain word, so that no template takes it apart, that occurs in none of the messages."""
    used = json.dumps(messages, ensure_ascii=False, default=str)
    number = 0
    while f"NoriaGoesOnHere{number}" in used:
        number += 1
    return f"NoriaGoesOnHere{number}"
