"""What a terminal shows of an answer as it comes."""

from __future__ import annotations

from noria.offline.job import News
from noria.parsers.parts import Content, Reasoning

_GAP = "\n\n"  # between reasoning and answer


class Shown:
    """Of one answer: its reasoning, then its text."""

    def __init__(self) -> None:
        self._has_reasoned = False

    def add(self, news: News) -> str:
        told = []
        for part in news.parts:
            if isinstance(part, Reasoning):
                self._has_reasoned = True
                told.append(part.text)
            elif isinstance(part, Content):
                told.append(_GAP + part.text if self._has_reasoned else part.text)
                self._has_reasoned = False
        return "".join(told)
