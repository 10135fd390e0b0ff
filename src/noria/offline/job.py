"""A set of prompts on its way through an engine, seen from one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from random import Random

from noria.core.outputs import Delta, FinishReason
from noria.engine.client import EngineClient
from noria.engine.messages import GenerateRequest, expand_choices
from noria.offline.outputs import CompletionOutput, RequestOutput
from noria.offline.prompts import Prompt
from noria.parsers.parts import Part, text_of
from noria.parsers.reply import AnswerReader
from noria.sampling.params import SamplingParams
from noria.tokenize.output import OutputStream
from noria.tokenize.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class News:
    """What a step brought for one output. parts: of its text, reasoning and calls, what is now certain and was not told
    before; text: those for the user. num_tokens: new ones. output holds all of it so far.
    """

    request: RequestOutput
    output: CompletionOutput
    parts: tuple[Part, ...]
    num_tokens: int

    @property
    def text(self) -> str:
        """For the user."""
        return text_of(self.parts)


@dataclass(slots=True)
class _Running:
    request: RequestOutput
    output: CompletionOutput
    stream: OutputStream
    reader: AnswerReader


class Job:
    """Submits prompts and gathers their outputs. Iterate over `news` until it ends, or `cancel`."""

    _names = count()

    def __init__(self, client: EngineClient, tokenizer: Tokenizer, random: Random) -> None:
        self.requests: list[RequestOutput] = []
        self._client = client
        self._tokenizer = tokenizer
        self._random = random
        self._running: dict[str, _Running] = {}
        self._news: SimpleQueue[Sequence[Delta]] = SimpleQueue()

    def submit(self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]) -> None:
        """Queue every prompt, or none: raises RequestError for one that cannot be served."""
        sequences: list[GenerateRequest] = []
        running: dict[str, _Running] = {}
        for prompt, asked in zip(prompts, params, strict=True):
            request = _blank_request(f"offline-{next(self._names)}", prompt, asked)
            choices = expand_choices(request.request_id, prompt.token_ids, asked, self._random)
            for choice, output in zip(choices, request.outputs, strict=True):
                stream = OutputStream(self._tokenizer, asked, prompt.reading.shown_ids)
                running[choice.request_id] = _Running(request, output, stream, prompt.reading.reader())
            sequences += choices
            self.requests.append(request)
        self._client.submit(sequences, self._news.put).result()
        self._running.update(running)

    def news(self) -> Iterator[News]:
        """Blocks until there is some; ends when every output has."""
        while self._running:
            for delta in self._news.get():
                running = self._running.get(delta.request_id)
                if running is not None:
                    yield self._absorb(delta, running)

    def cancel(self) -> None:
        """End everything that still runs."""
        self._client.cancel(list(self._running))
        self._running.clear()

    def _absorb(self, delta: Delta, running: _Running) -> News:
        request, output, stream = running.request, running.output, running.stream
        is_over = stream.is_finished
        piece = stream.feed(delta.token_ids, delta.stop_token_id, delta.finish is not None)
        parts = () if is_over else running.reader.feed(piece.text, piece.text_offsets, stream.is_finished)
        for part in parts:
            output.add(part)
        output.token_ids += delta.token_ids[: piece.num_tokens]
        if output.logprobs is not None:
            output.logprobs += delta.logprobs[: piece.num_tokens]
        if request.prompt_logprobs is not None and output.index == 0:
            request.prompt_logprobs += delta.prompt_logprobs
        request.num_cached_tokens = max(request.num_cached_tokens, delta.num_cached_tokens)
        if piece.stop is not None:
            self._client.cancel([delta.request_id], FinishReason.STOP)
        if delta.finish is not None:  # also after a stop string: only then has the engine let go of it
            del self._running[delta.request_id]
            output.finish_reason = FinishReason.STOP.value if stream.stopped else delta.finish.value
            output.stop_reason = stream.stop_reason
            output.error = delta.error
        return News(request, output, parts, piece.num_tokens)


def _blank_request(request_id: str, prompt: Prompt, params: SamplingParams) -> RequestOutput:
    wants_logprobs = params.logprobs is not None
    outputs = [CompletionOutput(i, logprobs=[] if wants_logprobs else None) for i in range(params.n)]
    request = RequestOutput(request_id, prompt.text, list(prompt.token_ids), outputs)
    if params.prompt_logprobs is not None:
        request.prompt_logprobs = [None]
    return request
