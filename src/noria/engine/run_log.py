"""Everything that a run's decisions followed from, in a file: what `noria simulate` replays and learns from.

JSON, an object a line, in the order in which it happened; `type` says what it is:

    engine   first of all: the settled settings
    step     a StepRecord: which requests computed how much, and what it took
    ended    a sequence: its RequestRecord, its limits, what ended it, and digests of its blocks; no token and no text

Digests tell which blocks of two sequences were alike, and are keyed by a secret that nobody keeps: no prompt can be
guessed from them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError
from noria.config.tenant import Tenant
from noria.core.outputs import Delta, FinishReason
from noria.core.prefix import HashChain
from noria.engine.client import EngineClient, Sink
from noria.engine.crowd import Crowd
from noria.engine.messages import EngineRequest, EngineStats, RequestRecord, StepRecord
from noria.engine.namespaces import namespaces
from noria.engine.records import Recorder

log = logging.getLogger(__name__)

_DIGEST_BYTES = 8


class EngineEntry(msgspec.Struct, frozen=True, tag="engine"):
    version: str
    config: EngineConfig


class StepEntry(msgspec.Struct, frozen=True, tag="step"):
    record: StepRecord


class EndedEntry(msgspec.Struct, frozen=True, tag="ended"):
    """A sequence. max_tokens, prompt_logprobs, timeout_s: as they were asked for; of one that is pooled, what costs
    the same.

    by_token: a token ended it. digests: of its full blocks in order, prompt and output, in hexadecimal.
    """

    record: RequestRecord
    max_tokens: int | None
    needs_every_position: bool
    tenant: Tenant
    timeout_s: float | None
    by_token: bool
    digests: tuple[str, ...]


Entry = EngineEntry | StepEntry | EndedEntry


@dataclass(slots=True)
class _Open:
    """A sequence that has not ended. It is written when both its record and its last delta are here."""

    request: EngineRequest
    output_ids: list[int] = field(default_factory=list)
    record: RequestRecord | None = None
    last: Delta | None = None


@dataclass(frozen=True, slots=True)
class _Noted:
    """A sink whose news the log reads first. Two of one sink are the same to whoever sorts news by sinks."""

    log: RunLog
    sink: Sink

    def __call__(self, deltas: Sequence[Delta]) -> None:
        self.log.note(deltas)
        self.sink(deltas)


class RunLog:
    """An EngineClient that writes down what goes through it, and a RecordListener.

    What cannot be written, as on a full disk, is told of once and costs the rest of the log, and nobody's request.
    """

    def __init__(self, client: EngineClient, config: EngineConfig, version: str, path: str) -> None:
        """Raises ConfigError where the file cannot be written; one that is there is replaced."""
        self._client = client
        self._block_size = config.cache.block_size
        # Keyed by a secret that nobody keeps; who shares with whom stays as it is in the engine.
        self._namespace_of = namespaces(replace(config, kv_identity=os.urandom(16).hex()))
        self._encoder = msgspec.json.Encoder()
        self._open: dict[str, _Open] = {}
        self._is_broken = False
        self._lock = threading.Lock()  # guards the open sequences, which come from any thread
        try:
            self._file = open(path, "wb")  # noqa: SIM115 - open as long as the engine is
        except OSError as error:
            raise ConfigError(f"the run log {path} cannot be written: {error.strerror}") from error
        self._write(EngineEntry(version, config))
        client.recorder.add_listener(self)

    def submit(self, requests: Sequence[EngineRequest], sink: Sink) -> Future[None]:
        with self._lock:
            fresh = [request for request in requests if request.request_id not in self._open]
            self._open.update((request.request_id, _Open(request)) for request in fresh)
        verdict = self._client.submit(requests, _Noted(self, sink))
        verdict.add_done_callback(lambda done: self._settle(done, fresh))
        return verdict

    def cancel(self, request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
        self._client.cancel(request_ids, finish)

    def stats(self) -> EngineStats:
        return self._client.stats()

    def crowd(self) -> Crowd | None:
        return self._client.crowd()

    @property
    def recorder(self) -> Recorder:
        return self._client.recorder

    def shutdown(self) -> None:
        self._client.shutdown()
        with suppress(OSError):
            self._file.close()

    def on_step(self, record: StepRecord) -> None:
        self._write(StepEntry(replace(record, changed_blocks=())))

    def on_request(self, record: RequestRecord) -> None:
        opened = self._open.get(record.request_id)
        if opened is not None:
            opened.record = replace(record, changed_blocks=())
            self._close(opened)

    def _settle(self, verdict: Future[None], requests: Sequence[EngineRequest]) -> None:
        if verdict.exception() is not None:
            with self._lock:
                for request in requests:
                    del self._open[request.request_id]

    def note(self, deltas: Sequence[Delta]) -> None:
        """Follow the news of a step, on the engine's thread."""
        for delta in deltas:
            opened = self._open[delta.request_id]
            opened.output_ids += delta.token_ids
            if delta.finish is not None:
                opened.last = delta
                self._close(opened)

    def _close(self, opened: _Open) -> None:
        if opened.record is None or opened.last is None:
            return
        request, params = opened.request, opened.request.params
        with self._lock:
            del self._open[request.request_id]
        self._write(
            EndedEntry(
                opened.record,
                params.max_tokens,
                params.needs_every_position,
                request.tenant,
                request.timeout_s,
                opened.last.stop_token_id is not None,
                self._digests(request, opened.output_ids),
            )
        )

    def _digests(self, request: EngineRequest, output_ids: Sequence[int]) -> tuple[str, ...]:
        token_ids = [*request.prompt_token_ids, *output_ids]
        chain = HashChain(self._namespace_of(request), self._block_size)
        return tuple(
            chain.digest(index, token_ids)[:_DIGEST_BYTES].hex()
            for index in range(len(token_ids) // self._block_size)
        )

    def _write(self, entry: Entry) -> None:
        """On the engine's thread, but for the first."""
        if self._is_broken:
            return
        try:
            self._file.write(self._encoder.encode(entry) + b"\n")
        except OSError as error:
            self._is_broken = True
            log.error("the run log ends here: %s", error)
