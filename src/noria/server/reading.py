"""What the routes that read texts do alike: from inputs to token ids, and from there to numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from noria.config.errors import RequestError
from noria.config.pooling import Head, Pooling, PoolingParams
from noria.core.plan import Numbers
from noria.sampling.validate import check_token_ids
from noria.server.chat_options import template_variables
from noria.server.common_fields import check_terms, reply_id
from noria.server.connection import while_connected
from noria.server.errors import ApiError
from noria.server.pool_turn import PoolOrder
from noria.server.protocol.messages import template_messages
from noria.server.protocol.pooling import InputFields, PoolingFields
from noria.server.protocol.prompts import Prompt, Truncation, split_prompts
from noria.server.protocol.unsupported import refuse_or_pass_over
from noria.server.service import Service
from noria.server.terms import terms_of
from noria.tokenize.chat_template import ChatOptions

# Refused unless the value asks for nothing: they ask for other numbers than this server makes.
_REFUSED = frozenset(
    ("prompt_embeds", "mm_processor_kwargs", "late_interaction", "step_tag_id", "returned_token_ids")
)
_FOREIGN_IDS = (
    "{error}. Ids must be those of this model's own tokenizer (POST /tokenize gives them); LangChain's "
    "OpenAIEmbeddings sends another's unless check_embedding_ctx_length=False"
)


@dataclass(frozen=True, slots=True)
class Readings:
    """What was made of a request's prompts, in their order."""

    numbers: list[Numbers]
    num_tokens: int
    num_cached: int

    def usage(self, tells_cached: bool) -> dict[str, Any]:
        told: dict[str, Any] = {
            "prompt_tokens": self.num_tokens,
            "total_tokens": self.num_tokens,
            "completion_tokens": 0,
        }
        if tells_cached:
            told["prompt_tokens_details"] = {"cached_tokens": self.num_cached}
        return told


class Reading:
    """One request, whatever its route. prefix: of the reply's id."""

    def __init__(self, service: Service, request: Request, fields: PoolingFields, prefix: str) -> None:
        """Raises ApiError for fields that cannot be honoured."""
        self.model = service.served.resolve(fields.model)
        refuse_or_pass_over(fields.model_extra or {}, _REFUSED, {})
        check_terms(fields)
        self.service = service
        self.id = reply_id(request, prefix)
        self._request = request
        self._fields = fields
        self._truncation = Truncation.of(fields.truncate_prompt_tokens, fields.truncation_side or "right")

    @property
    def most_tokens(self) -> int | None:
        """To what a prompt is cut; None: it is not."""
        most = self._truncation.max_tokens
        return self.service.served.max_model_len if most == -1 else most

    @property
    def keeps_ends(self) -> bool:
        """Prompts are cut, and at their beginnings."""
        return self._truncation.max_tokens is not None and self._truncation.keeps_end

    async def prompts(self, fields: InputFields) -> list[tuple[int, ...]]:
        """Token ids of the inputs. Raises ApiError that says which is at fault."""
        if (fields.input is None) == (fields.messages is None):
            raise ApiError("one of `input` and `messages` is needed", param="input")
        if fields.messages is not None:
            return [await self._chat(fields)]
        inputs = split_prompts(fields.input, self.service.limits.max_inputs, "input")
        texts = [one for one in inputs if isinstance(one, str)]
        encoded = iter(await self._encoded(texts, fields.add_special_tokens is not False))
        return [next(encoded) if isinstance(one, str) else self._checked_ids(one) for one in inputs]

    async def numbers(
        self, prompts: Sequence[tuple[int, ...]], params: PoolingParams | Sequence[PoolingParams]
    ) -> Readings:
        """params: one for all, or one each. Raises ApiError, RequestError, OverloadError, ClientDisconnect."""
        each = (params,) * len(prompts) if isinstance(params, PoolingParams) else tuple(params)
        self._check_lengths(prompts)
        self._check_amount(prompts, each)
        terms = terms_of(self._request, self._fields, self.service.options.request_timeout)
        order = PoolOrder(self.service.engine_request_id(self.id), tuple(prompts), each, terms)
        turn = await self.service.begin_pooling(order)
        try:
            numbers = await while_connected(self._request.receive, turn.gather())
        finally:
            turn.close()
        return Readings(numbers, sum(map(len, prompts)), turn.num_cached)

    def reply(self, kind: str, data: Sequence[Mapping[str, Any]], readings: Readings) -> Response:
        """A list of what was made. kind: what the protocol calls the reply."""
        return json_of(
            {
                "id": self.id,
                "object": kind,
                "created": int(time.time()),
                "model": self.model,
                "data": data,
                "usage": readings.usage(self.service.options.enable_prompt_tokens_details),
            }
        )

    async def _chat(self, fields: InputFields) -> tuple[int, ...]:
        variables = template_variables(fields.chat_template_kwargs, None, self.service.options.answers)
        options = ChatOptions(
            add_generation_prompt=bool(fields.add_generation_prompt), template_kwargs=variables
        )
        messages = template_messages(fields.messages)
        ids = await self.service.encode_chat(messages, options, bool(fields.add_special_tokens))
        return self._truncation.apply(ids, self.service.served.max_model_len)

    async def _encoded(self, texts: Sequence[str], add_special_tokens: bool) -> list[tuple[int, ...]]:
        most = self.most_tokens
        if most is None or not add_special_tokens or self._truncation.keeps_end:
            whole = await self.service.encode(texts, add_special_tokens)
            return [self._truncation.apply(ids, self.service.served.max_model_len) for ids in whole]
        return await self.service.encode_within(texts, most)

    def _checked_ids(self, ids: Prompt) -> tuple[int, ...]:
        token_ids = tuple(int(i) for i in ids)
        try:
            check_token_ids(token_ids, self.service.served.vocab_size, "input")
        except RequestError as error:
            raise ApiError(_FOREIGN_IDS.format(error=error), param="input") from None
        return self._truncation.apply(token_ids, self.service.served.max_model_len)

    def _check_lengths(self, prompts: Sequence[tuple[int, ...]]) -> None:
        longest = self.service.served.max_model_len
        for number, prompt in enumerate(prompts, 1):
            which = f"text {number} of {len(prompts)}" if len(prompts) > 1 else "the text"
            if not prompt:
                raise ApiError(f"{which} is empty; it needs at least one token", param="input")
            if len(prompt) > longest:
                raise ApiError(
                    f"This model's maximum context length is {longest} tokens. However, {which} has "
                    f"{len(prompt)}. Shorten it, or have it cut: `truncate_prompt_tokens: -1` "
                    "(context_length_exceeded)",
                    param="input",
                )

    def _check_amount(self, prompts: Sequence[tuple[int, ...]], params: Sequence[PoolingParams]) -> None:
        """Of numbers, where each token makes some: a body of a few megabytes could ask for more than memory holds."""
        pairs = zip(prompts, params, strict=True)
        count = sum(len(prompt) * self._width_of(one) for prompt, one in pairs if one.pooling is Pooling.ALL)
        most = self.service.limits.max_numbers
        if count > most:
            raise ApiError(
                f"these tokens have {count} numbers in all; one reply may have {most}. Send fewer or "
                "shorter texts at once",
                param="input",
            )

    def _width_of(self, params: PoolingParams) -> int:
        abilities = self.service.served.abilities
        own = len(abilities.labels) if params.head is Head.CLASSES else abilities.embedding_size
        return params.dimensions or own


def json_of(content: Any) -> Response:
    """Arrays of numpy included."""
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def array_of(numbers: Numbers) -> Any:
    """As an array of numpy."""
    import numpy as np  # only who asks for numbers pays for it

    return np.frombuffer(numbers.data, "<f4").reshape(numbers.shape)
