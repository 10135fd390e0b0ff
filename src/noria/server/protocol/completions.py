"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from noria.server.protocol.fields import GenerationFields, Whole
from noria.server.protocol.prompts import PROMPT_SCHEMA


class CompletionRequest(GenerationFields):
    """Fields beyond these pass with a line in the log, unless ignoring them would change the answer (400)."""

    # Checked by protocol.prompts: trying four kinds of lists on a million items one after another is slow.
    prompt: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)]
    logprobs: Whole | None = None
    best_of: Whole | None = None
