"""Chat templates: Jinja sources that turn messages into a prompt, in the dialect that model makers write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2

from noria.config.errors import RequestError
from noria.tokenize.continuation import Continuation
from noria.tokenize.messages import ContentFormat, prepare_messages
from noria.tokenize.template_dialect import CompiledTemplate, TemplateRefusal, build_environment
from noria.tokenize.tool_text import spelt_out

MAX_PROMPT_CHARACTERS = 16 * 2**20
MAX_ERROR_CHARACTERS = 500
MAX_CACHED_TEMPLATES = 32  # a request may bring its own
CONTENT_FORMATS: Mapping[str, ContentFormat | None] = {
    "auto": None,
    "string": ContentFormat.TEXT,
    "openai": ContentFormat.PARTS,
}
_RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How to render a chat.

    add_generation_prompt: end with the beginning of the assistant's turn; None means yes, unless the final
        message is continued.
    continue_final_message: end exactly at the final message's text, so that the model goes on with it.
    tools, documents: JSON-like objects, as the template expects them. A template that knows of no tools gets them,
        and what messages tell of calls, as text.
    chat_template: a name among the model's templates, or a Jinja source; None takes the model's own.
    template_kwargs: further variables of the template.
    """

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    chat_template: str | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


class ChatTemplates:
    """The chat templates of one model.

    templates: name -> Jinja source; "default" is used unless another is asked for.
    special_tokens: "bos_token", ... -> text; variables of every template.
    now: the time that `strftime_now` tells.
    content: what all of them take a message's content to be; None reads it off each.
    """

    def __init__(
        self,
        templates: Mapping[str, str],
        special_tokens: Mapping[str, str],
        now: Callable[[], datetime] = datetime.now,
        content: ContentFormat | None = None,
    ) -> None:
        self._templates = dict(templates)
        self._special_tokens = dict(special_tokens)
        self._content = content
        self._environment = build_environment(now)
        self._compile = lru_cache(maxsize=MAX_CACHED_TEMPLATES)(self._compile_uncached)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._templates))

    @property
    def default_source(self) -> str | None:
        """Of the template that is used unless another is asked for."""
        return self._templates.get("default")

    @property
    def tool_source(self) -> str | None:
        """Of the template that is used for chats with tools."""
        return self._templates.get("tool_use", self.default_source)

    def render(self, messages: Sequence[Mapping[str, Any]], options: ChatOptions) -> str:
        """The prompt for these messages.

        Raises RequestError when there is no template, it refuses the messages or fails on them, the prompt
        would exceed MAX_PROMPT_CHARACTERS, or the options contradict each other.
        """
        if options.continue_final_message and options.add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt cannot both be set: the prompt ends either "
                "inside the final message or at the beginning of a new one",
                "continue_final_message",
            )
        taken = sorted(_RESERVED & options.template_kwargs.keys())
        if taken:
            raise RequestError(
                f"chat_template_kwargs must not hold {', '.join(taken)}, which are fields of the request",
                "chat_template_kwargs",
            )
        template = self._compile(self._source(options))
        if messages and not template.takes_tools:
            messages = spelt_out(messages, options.tools)
        prepared = prepare_messages(messages, self._content or template.content_format)
        if not options.continue_final_message:
            begins_turn = options.add_generation_prompt is not False
            return self._fill(template, prepared, options, begins_turn)
        continuation = Continuation.of(prepared)
        return continuation.cut(self._fill(template, continuation.messages, options, False))

    def _source(self, options: ChatOptions) -> str:
        if options.chat_template is not None:
            return self._asked_source(options.chat_template)
        wanted = ("tool_use", "default") if options.tools else ("default",)
        source = next((self._templates[name] for name in wanted if name in self._templates), None)
        if source is None:
            raise RequestError(
                f"the model has no default chat template (it has: {self._known()}); start with --chat-template FILE, "
                "or send the whole prompt as a plain completion",
                "messages",
            )
        return source

    def _asked_source(self, asked: str) -> str:
        source = self._templates.get(asked)
        if source is not None or "{" in asked:
            return asked if source is None else source
        raise RequestError(
            f"chat_template is {asked!r:.80}, neither a Jinja template nor the name of one of the model's "
            f"templates ({self._known()})",
            "chat_template",
        )

    def _known(self) -> str:
        return ", ".join(self.names) or "none"

    def _compile_uncached(self, source: str) -> CompiledTemplate:
        try:
            return CompiledTemplate.of(self._environment, source)
        except jinja2.TemplateSyntaxError as error:
            raise RequestError(
                f"the chat template is not valid Jinja: line {error.lineno}: {_bounded(error)}",
                "chat_template",
            ) from error
        except Exception as error:  # nesting too deep for the parser, say
            raise RequestError(
                f"the chat template cannot be compiled: {_bounded(error)}", "chat_template"
            ) from error

    def _fill(
        self,
        template: CompiledTemplate,
        messages: Sequence[Mapping[str, Any]],
        options: ChatOptions,
        begins_turn: bool,
    ) -> str:
        variables = {
            **self._special_tokens,
            **options.template_kwargs,
            "messages": messages,
            "tools": options.tools,
            "documents": options.documents,
            "add_generation_prompt": begins_turn,
        }
        try:
            prompt = template.render(variables, MAX_PROMPT_CHARACTERS)
        except TemplateRefusal as error:
            raise RequestError(
                f"the chat template refuses these messages: {_bounded(error)}", "messages"
            ) from error
        except Exception as error:  # whatever the template's code ran into
            raise RequestError(
                f"the chat template failed on these messages: {type(error).__name__}: {_bounded(error)}",
                "messages",
            ) from error
        if prompt is None:
            raise RequestError(
                f"the chat template made a prompt of more than {MAX_PROMPT_CHARACTERS} characters", "messages"
            )
        return prompt


def _bounded(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[:MAX_ERROR_CHARACTERS] + "..."
