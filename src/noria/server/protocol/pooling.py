"""The bodies of the routes that read texts and continue none."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from noria.server.protocol.fields import Number, Switch, Text, Whole
from noria.server.protocol.messages import MESSAGES_SCHEMA
from noria.server.protocol.prompts import PROMPT_SCHEMA

_TEXTS_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}
_DOCUMENTS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        ]
    },
}
# Inputs are checked by the handlers, which stop at the first fault and say where it is.
Texts = Annotated[Any, WithJsonSchema(_TEXTS_SCHEMA)]


class PoolingFields(BaseModel):
    """What all of them honour. A field that is null counts as not stated."""

    model_config = ConfigDict(extra="allow")

    model: Text | None = None
    truncate_prompt_tokens: Whole | None = None
    truncation_side: Text | None = None
    cache_salt: Text | None = None
    priority: Whole | None = None
    request_timeout: Number | None = None  # seconds


class InputFields(PoolingFields):
    """Texts or token ids as `input`, or a chat as `messages`: one of the two."""

    input: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)] = None
    messages: Annotated[Any, WithJsonSchema({"anyOf": [MESSAGES_SCHEMA, {"type": "null"}]})] = None
    add_special_tokens: Switch | None = None
    add_generation_prompt: Switch | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class VectorFields(InputFields):
    encoding_format: Text | None = None  # float | base64
    dimensions: Whole | None = None


class EmbeddingRequest(VectorFields):
    """POST /v1/embeddings"""


class PoolingRequest(VectorFields):
    """POST /pooling"""

    task: Text | None = None  # embed | token_embed | classify | token_classify


class ClassificationRequest(InputFields):
    """POST /classify"""


class PairFields(PoolingFields):
    instruction: Text | None = None  # what makes texts fit, to a chat model


class ScoreRequest(PairFields):
    """POST /score. Each field of a side is another name of the same."""

    queries: Texts = None
    text_1: Texts = None
    data_1: Texts = None
    documents: Texts = None
    items: Texts = None
    text_2: Texts = None
    data_2: Texts = None


class RerankRequest(PairFields):
    """POST /rerank"""

    query: Text
    documents: Annotated[Any, WithJsonSchema(_DOCUMENTS_SCHEMA)]
    top_n: Whole | None = None
    return_documents: Switch | None = None
    max_tokens_per_doc: Whole | None = None
