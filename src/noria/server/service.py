"""What every generating route works with: the model, the engine's bridge, threads for long texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from noria.config.abilities import Task
from noria.config.errors import EngineError, OverloadError
from noria.config.serving import ServerOptions
from noria.server.access_log import request_log
from noria.server.bridge import Bridge
from noria.server.errors import ApiError, deadline_passed, unavailable
from noria.server.health import Watch
from noria.server.http_metrics import HttpMetrics
from noria.server.limits import Limits
from noria.server.pool_turn import PoolOrder, PoolTurn
from noria.server.served import ServedModel
from noria.server.turn import Turn, TurnRequest
from noria.server.worker_pool import NoThreadFree, WorkerPool, WorkTooLong
from noria.tokenize.chat_template import ChatOptions
from noria.tokenize.scoring import Prompts, Scoring, shortened

Result = TypeVar("Result")


class Begins(Protocol):
    async def begin(self) -> None: ...


AnyTurn = TypeVar("AnyTurn", bound=Begins)

_NUM_THREADS = 2  # of each kind; more would only share one interpreter


class Service:
    """One for the whole process."""

    def __init__(
        self,
        served: ServedModel,
        options: ServerOptions,
        limits: Limits,
        bridge: Bridge,
        watch: Watch,
        metrics: HttpMetrics,
        process: str,
    ) -> None:
        """process: a name that no other process which submits to the engine has; digits and dashes."""
        self.served = served
        self.options = options
        self.limits = limits
        self._bridge = bridge
        self._watch = watch
        self._metrics = metrics
        self._log = request_log(options.logs, served.tokenizer)
        self._random = Random(served.seed)
        self._process = process
        self._numbers = itertools.count()
        wait_s = limits.thread_wait_s
        self._encoding = WorkerPool("noria-tokenize", _NUM_THREADS, wait_s)
        self._templating = WorkerPool("noria-template", _NUM_THREADS, wait_s, limits.max_hung_templates)

    def close(self) -> None:
        self._encoding.close()
        self._templating.close()

    def engine_request_id(self, response_id: str) -> str:
        """Unique in the engine even when clients repeat their own ids, at this process or another."""
        return f"{response_id}.{self._process}-{next(self._numbers)}"

    async def encode(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        """Token ids of each text. Raises ApiError (503) when too many long ones wait before them.

        Long texts are tokenised on another thread, so that streams go on.
        """

        def encode_all() -> list[list[int]]:
            return [self.served.tokenizer.encode(text, add_special_tokens) for text in texts]

        return await self._encoded(texts, encode_all)

    async def encode_within(self, texts: Sequence[str], max_tokens: int) -> list[tuple[int, ...]]:
        """As encode, with special tokens; what is longer loses the end of its text, and none of those."""

        def encode_all() -> list[tuple[int, ...]]:
            return [tuple(self.served.tokenizer.encode_within(text, max_tokens)) for text in texts]

        return await self._encoded(texts, encode_all)

    async def encode_for(self, scoring: Scoring, max_tokens: int | None) -> Prompts:
        """What is read for scores. Raises as encode and, where chats are rendered, as encode_chat."""

        def encode_all() -> Prompts:
            return scoring.prompts(self.served.tokenizer, max_tokens)

        return await (
            self._rendered(encode_all) if scoring.is_rendered else self._encoded(scoring.texts, encode_all)
        )

    async def shortened(self, texts: Sequence[str], max_tokens: int) -> list[str]:
        """The beginnings of texts, of so many tokens at most. Raises as encode, and RequestError."""
        return await self._encoded(texts, lambda: shortened(self.served.tokenizer, texts, max_tokens))

    async def _encoded(self, texts: Sequence[str], work: Callable[[], Result]) -> Result:
        if sum(map(len, texts)) <= self.limits.long_text:
            return work()
        return await self._on_thread(self._encoding, work)

    async def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens written out. Raises as `encode`, RequestError for ids that are none."""

        def decode_all() -> str:
            return self.served.tokenizer.decode(token_ids, skip_special_tokens=False)

        if len(token_ids) <= self.limits.long_text:
            return decode_all()
        return await self._on_thread(self._encoding, decode_all)

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions, add_special_tokens: bool
    ) -> list[int]:
        """Token ids of a rendered chat. Raises RequestError as the template does, ApiError when it takes too long
        (400) and when too many wait before it (503).

        Always on another thread: a template is a program, and a bad one must not stop the server.
        """

        encode = self.served.tokenizer.encode_chat
        return await self._rendered(lambda: encode(messages, options, add_special_tokens))

    async def _rendered(self, work: Callable[[], Result]) -> Result:
        timeout_s = self.limits.template_timeout_s
        try:
            return await self._on_thread(self._templating, work, timeout_s)
        except WorkTooLong:
            raise ApiError(
                f"the chat template took more than {timeout_s:g} s on these messages", param="messages"
            ) from None

    async def begin(self, request: TurnRequest) -> Turn:
        """Submit to the engine. Raises RequestError, OverloadError, or EngineError when the engine takes nothing."""
        num_sequences = len(request.prompts) * request.n
        if num_sequences > self.limits.max_sequences:
            raise ApiError(
                f"n times the number of prompts is {num_sequences}; one request may ask for "
                f"{self.limits.max_sequences} choices",
                param="n",
            )
        self.served.abilities.need(Task.GENERATE)
        return await self._begun(
            request, lambda: Turn(self._bridge, self.served.tokenizer, request, self._random)
        )

    async def begin_pooling(self, order: PoolOrder) -> PoolTurn:
        """As begin."""
        return await self._begun(order, lambda: PoolTurn(self._bridge, order))

    async def _begun(self, request: TurnRequest | PoolOrder, make: Callable[[], AnyTurn]) -> AnyTurn:
        self._log(request)
        left_s = request.terms.timeout_s()
        if left_s is not None and left_s <= 0:
            raise deadline_passed(request.terms.time_s)
        try:
            if not self._watch.is_ready():
                raise EngineError("it makes no progress")
            turn = make()
            await turn.begin()
        except EngineError:
            self._metrics.count_rejection("engine_failed")
            raise
        except OverloadError as error:
            self._metrics.count_rejection(error.reason.value)
            raise
        return turn

    async def _on_thread(
        self, pool: WorkerPool, work: Callable[[], Result], limit_s: float | None = None
    ) -> Result:
        try:
            return await pool.run(work, limit_s)
        except NoThreadFree:
            self._metrics.count_rejection("threads_busy")
            raise unavailable("The server is busy preparing the texts of other requests.", 5) from None
