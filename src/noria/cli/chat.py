"""`noria chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from noria.cli.command import Command
from noria.cli.loading import load, sampling_params
from noria.config.errors import RequestError
from noria.config.generating import ChatCommandOptions
from noria.offline.llm import LLM
from noria.sampling.params import SamplingParams

_EXAMPLES = """\
in the conversation:
  /reset   forget everything said so far
  /exit    leave (so does Ctrl-D); Ctrl-C stops an answer

examples:
  noria chat
  noria chat ./my-model --system "Answer in one sentence." --temperature 0.7
  echo "What is the capital of France?" | noria chat --temperature 0
"""


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

    def say(self, text: str) -> None:
        """Answer to a message, printed as it comes. A message that is refused is forgotten."""
        self.messages.append({"role": "user", "content": text})
        answer = ""
        try:
            for news in self.llm.stream_chat(self.messages, self.params):
                print(news.text, end="", flush=True)
                answer += news.text
                if news.output.error is not None:
                    raise RequestError(news.output.error)
        except RequestError as error:
            self.messages.pop()
            print(f"{error}\n(/reset starts a new conversation)", file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(" [stopped]", end="")
        print()
        self.messages.append({"role": "assistant", "content": answer})


def run(options: ChatCommandOptions) -> int:
    with load(options.engine) as llm:
        conversation = Conversation(llm, sampling_params(options.sampling, llm), options.talk.system)
        is_terminal = sys.stdin.isatty()
        if is_terminal:
            print(f"{llm.name}: say something. /reset forgets, /exit leaves.", file=sys.stderr)
        while (text := _read_message(is_terminal)) is not None:
            if text == "/reset":
                conversation.reset()
            elif text:
                conversation.say(text)
    return 0


def _read_message(is_terminal: bool) -> str | None:
    """The next message; None at the end."""
    try:
        text = input("> " if is_terminal else "").strip()
    except EOFError:
        return None
    return None if text == "/exit" else text


COMMAND = Command(
    name="chat",
    summary="talk to a model in this terminal",
    description="A conversation of several turns with a model in this process, answers streamed.",
    examples=_EXAMPLES,
    options=ChatCommandOptions,
    run=run,
)
