"""Matchers of the sequences that follow a grammar: lives in the grammar process."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from llguidance import LLExecutor, LLMatcher, LLTokenizer

from noria.structured.reading import GrammarFault, compile_grammar, fault_of
from noria.structured.wire import Filled

_MAX_KEPT = 64  # compiled grammars
_MAX_KEPT_TEXT = 2 << 20  # characters of them
_WORD_BYTES = 4
_SLOW_S = 0.1  # of a fill, after which the next looks at each sequence alone
_MASK_LIMIT_S = 0.25  # of a processor, for one mask: everybody's step waits for it, and it takes milliseconds


class Compiled:
    """Compiled grammars, those used last. Thread-safe: one that several ask for is compiled once."""

    def __init__(self, vocabulary: LLTokenizer) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[str, str], Future[LLMatcher]] = OrderedDict()

    def find(self, kind: str, text: str) -> LLMatcher:
        """A matcher of its own at the beginning of a grammar. Raises GrammarFault."""
        key = (kind, text)
        with self._lock:
            made = self._made.get(key)
            is_new = made is None
            if made is None:
                made = self._made[key] = Future()
            self._made.move_to_end(key)
            self._drop_oldest()
        if is_new:
            try:
                made.set_result(compile_grammar(self._vocabulary, kind, text))
            except GrammarFault as fault:
                made.set_exception(fault)
            except BaseException as error:  # others wait for the same: a panic must not leave them waiting
                made.set_exception(GrammarFault(f"it cannot be read: {type(error).__name__}"))
        return made.result().deep_copy()

    def _drop_oldest(self) -> None:
        while len(self._made) > 1 and (
            len(self._made) > _MAX_KEPT or sum(len(text) for _, text in self._made) > _MAX_KEPT_TEXT
        ):
            self._made.popitem(last=False)


class Matchers:
    """One for each request. Any thread adds and forgets; one fills."""

    def __init__(self, vocabulary: LLTokenizer) -> None:
        self.compiled = Compiled(vocabulary)
        self._words = -(-vocabulary.vocab_size // 32)
        self._matchers: dict[str, LLMatcher] = {}
        self._was_slow = False
        self._executor = LLExecutor(num_threads=max(1, min(8, (os.cpu_count() or 1) // 4)))

    def add(self, kind: str, text: str, outputs: Mapping[str, Sequence[int]]) -> None:
        """Sequences of a grammar. outputs: request id -> its tokens so far. Raises GrammarFault."""
        made = {request_id: self.compiled.find(kind, text) for request_id in outputs}
        for request_id, matcher in made.items():
            if outputs[request_id] and not matcher.consume_tokens(list(outputs[request_id])):
                raise GrammarFault(f"the output so far does not follow it: {fault_of(matcher)}")
        self._matchers.update(made)

    def forget(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            self._matchers.pop(request_id, None)

    def fill(self, news: Mapping[str, Sequence[int]]) -> Filled:
        """news: request id -> its new tokens."""
        masks = bytearray(len(news) * self._words * _WORD_BYTES)
        errors: dict[str, str] = {}
        unknown: list[str] = []
        asked: list[tuple[LLMatcher, int]] = []
        for row, (request_id, tokens) in enumerate(news.items()):
            matcher = self._matchers.get(request_id)
            if matcher is None:
                unknown.append(request_id)
            elif tokens and not matcher.consume_tokens(list(tokens)):
                errors[request_id] = fault_of(matcher)
            else:
                asked.append((matcher, row))
        ids = list(news)
        too_slow = self._compute(asked, masks, len(news)) if asked else ()
        errors |= {
            ids[row]: f"a token of it takes more than {_MASK_LIMIT_S:g} s to decide" for row in too_slow
        }
        for matcher, row in asked:
            if matcher.is_error():
                errors[ids[row]] = fault_of(matcher)
        return Filled(bytes(masks), errors, tuple(unknown))

    def _compute(self, asked: list[tuple[LLMatcher, int]], masks: bytearray, num_rows: int) -> list[int]:
        """Fill the rows of masks; those of sequences that take too long, which are looked for after a slow fill."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(masks))
        row_bytes = self._words * _WORD_BYTES
        started_s = time.monotonic()
        too_slow = []
        if self._was_slow:
            for matcher, row in asked:
                before_s = time.thread_time()  # a busy machine is no grammar's fault
                matcher.unsafe_compute_mask_ptr(address + row * row_bytes, row_bytes)
                if time.thread_time() - before_s > _MASK_LIMIT_S:
                    too_slow.append(row)
        else:
            self._executor.unsafe_compute_mask_ptr(asked, address, row_bytes, num_rows)
        self._was_slow = time.monotonic() - started_s > _SLOW_S
        return too_slow
