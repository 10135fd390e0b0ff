"""How the fields of a request say that a chat is to be rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noria.config.answers import AnswerOptions
from noria.server.errors import ApiError
from noria.server.protocol.chat import ChatRendering
from noria.tokenize.chat_template import ChatOptions

_THINKING_VARIABLES = ("enable_thinking", "thinking")  # as templates spell it


def chat_options(fields: ChatRendering, answers: AnswerOptions) -> ChatOptions:
    """Raises ApiError for a template that this server does not run, and for documents that are none."""
    variables = template_variables(fields.chat_template_kwargs, fields.reasoning_effort, answers)
    return ChatOptions(
        add_generation_prompt=fields.add_generation_prompt,
        continue_final_message=bool(fields.continue_final_message),
        documents=_documents(fields.documents),
        chat_template=_template(fields.chat_template, answers),
        template_kwargs=variables,
    )


def template_variables(
    stated: Mapping[str, Any] | None,
    reasoning_effort: str | None,
    answers: AnswerOptions,
    thinks: bool | None = None,
) -> dict[str, Any]:
    """What a request states, over what the server's operator does.

    thinks: whether the model shall reason before it answers; None leaves it to the effort, without one to the model.
    """
    variables = {**(answers.default_chat_template_kwargs or {}), **(stated or {})}
    if reasoning_effort is not None:
        variables.setdefault("reasoning_effort", reasoning_effort)
        thinks = reasoning_effort != "none" if thinks is None else thinks
    if thinks is not None:
        for name in _THINKING_VARIABLES:
            variables.setdefault(name, thinks)
    return variables


def _template(asked: str | None, answers: AnswerOptions) -> str | None:
    # A plain name stands for one of the model's own templates, which are trusted.
    if asked is not None and "{" in asked and not answers.trust_request_chat_template:
        raise ApiError(
            "chat_template is refused: this server runs its own templates alone "
            "(--trust-request-chat-template lets requests bring theirs)",
            param="chat_template",
        )
    return asked


def _documents(documents: list[Any] | None) -> list[dict[str, Any]] | None:
    if documents is not None and not all(isinstance(document, dict) for document in documents):
        raise ApiError("documents must be a list of objects", param="documents")
    return documents
