"""`noria chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from noria.cli.loading import load, sampling_params
from noria.cli.showing import Shown
from noria.config.errors import RequestError
from noria.config.generating import ChatCommandOptions
from noria.offline.llm import LLM
from noria.sampling.params import SamplingParams


@dataclass
class Conversation:
    """What was said, and how to go on."""

    llm: LLM
    params: SamplingParams
    system: str | None
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def say(self, text: str) -> bool:
        """Answer to a message, printed as it comes. A message that is refused is forgotten: returns False."""
        self.messages.append({"role": "user", "content": text})
        answer, shown = "", Shown()
        try:
            for news in self.llm.stream_chat(self.messages, self.params):
                print(shown.add(news), end="", flush=True)
                answer += news.text
                if news.output.error is not None:
                    raise RequestError(news.output.error)
        except RequestError as error:
            self.messages.pop()
            print(f"noria chat: {error}", file=sys.stderr)
            return False
        except KeyboardInterrupt:
            print(" [stopped]", end="")
        print()
        self.messages.append({"role": "assistant", "content": answer})
        return True


def run(options: ChatCommandOptions) -> int:
    """Status 1 when messages came from a file or a pipe and one was refused."""
    has_failed = False
    with load(options.engine) as llm:
        conversation = Conversation(llm, sampling_params(options.sampling, llm), options.talk.system)
        is_terminal = sys.stdin.isatty()
        if is_terminal:
            print(f"{llm.name}: say something. /reset forgets, /exit leaves.", file=sys.stderr)
        while (text := _read_message(is_terminal)) is not None:
            if text == "/reset":
                conversation.reset()
            elif text and not conversation.say(text):
                has_failed = True
    return int(has_failed and not is_terminal)


def _read_message(is_terminal: bool) -> str | None:
    """The next message; None at the end."""
    try:
        text = input("> " if is_terminal else "").strip()
    except EOFError:
        return None
    return None if text == "/exit" else text
