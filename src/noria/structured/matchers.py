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

from noria.structured.faults import GrammarFault
from noria.structured.mask_memory import MaskMemory
from noria.structured.reading import compile_grammar, fault_of
from noria.structured.wire import Fill, Filled

_MAX_KEPT = 64  # compiled grammars
_MAX_KEPT_TEXT = 2 << 20  # characters of them
_WORD_BYTES = 4
_MAX_THREADS = 8  # that make masks, where the machine has four times as many processors
_SLOW_S = 0.1  # of a fill, after which the next looks at each sequence alone
_MASK_LIMIT_S = 0.25  # of a processor, for one mask: everybody's step waits for it, and it takes milliseconds


class Compiled:
    """Compiled grammars, those used last. Thread-safe: one that several ask for is compiled once."""

    def __init__(self, vocabulary: LLTokenizer) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._made: OrderedDict[str, Future[LLMatcher]] = OrderedDict()

    def find(self, source: str) -> LLMatcher:
        """A matcher of its own at the beginning of a grammar. Raises GrammarFault."""
        with self._lock:
            made = self._made.get(source)
            is_new = made is None
            if made is None:
                made = self._made[source] = Future()
            self._made.move_to_end(source)
            self._drop_oldest()
        if is_new:
            try:
                made.set_result(compile_grammar(self._vocabulary, source))
            except GrammarFault as fault:
                made.set_exception(fault)
            except BaseException as error:  # others wait for the same: a panic must not leave them waiting
                made.set_exception(GrammarFault(f"it cannot be read: {type(error).__name__}"))
        return made.result().deep_copy()

    def keep(self, source: str, compiled: LLMatcher) -> None:
        """One that was compiled before, at its beginning."""
        with self._lock:
            made = self._made[source] = Future[LLMatcher]()
            made.set_result(compiled)

    def _drop_oldest(self) -> None:
        while len(self._made) > 1 and (
            len(self._made) > _MAX_KEPT or sum(map(len, self._made)) > _MAX_KEPT_TEXT
        ):
            self._made.popitem(last=False)


class Matchers:
    """One for each sequence. Any thread adds and forgets; one fills. max_threads: that make masks at a time."""

    def __init__(self, vocabulary: LLTokenizer, max_threads: int = _MAX_THREADS) -> None:
        self.compiled = Compiled(vocabulary)
        self.row_bytes = -(-vocabulary.vocab_size // 32) * _WORD_BYTES
        self._matchers: dict[str, LLMatcher] = {}
        self._was_slow = False
        num_threads = min(max_threads, (os.cpu_count() or 1) // 4)
        self._executor = LLExecutor(num_threads=num_threads) if num_threads > 1 else None

    def add(self, source: str, outputs: Mapping[str, Sequence[int]]) -> None:
        """Sequences of a grammar. source: from `reading.source_of`. outputs: name -> its tokens so far.

        Raises GrammarFault.
        """
        made = {name: self.compiled.find(source) for name in outputs}
        for name, matcher in made.items():
            if outputs[name] and not matcher.consume_tokens(list(outputs[name])):
                raise GrammarFault(f"the output so far does not follow it: {fault_of(matcher)}")
        self._matchers.update(made)

    def error_of(self, source: str, outputs: Mapping[str, Sequence[int]]) -> str | None:
        """As add; returns what is wrong with the grammar."""
        try:
            self.add(source, outputs)
        except GrammarFault as fault:
            return str(fault)
        return None

    def forget(self, names: Sequence[str]) -> None:
        for name in names:
            self._matchers.pop(name, None)

    def fill(self, asked: Fill, memory: MaskMemory) -> Filled:
        """Follow the new tokens of some sequences, and fill their rows of memory."""
        errors: dict[str, str] = {}
        unknown: list[str] = []
        going_on: list[tuple[LLMatcher, int]] = []
        names = list(asked.news)
        for row, (name, tokens) in enumerate(asked.news.items()):
            matcher = self._matchers.get(name)
            if matcher is None:
                unknown.append(name)
            elif tokens and not matcher.consume_tokens(list(tokens)):
                errors[name] = fault_of(matcher)
            else:
                going_on.append((matcher, row))
        if going_on:
            mapped = memory.rows(asked.first_row + len(names))
            start = ctypes.addressof(ctypes.c_char.from_buffer(mapped, asked.first_row * self.row_bytes))
            errors |= {
                names[row]: f"a token of it takes more than {_MASK_LIMIT_S:g} s to decide"
                for row in self._compute(going_on, start, len(names))
            }
        for matcher, row in going_on:
            if matcher.is_error():
                errors[names[row]] = fault_of(matcher)
        return Filled(errors, tuple(unknown))

    def _compute(self, asked: list[tuple[LLMatcher, int]], start: int, num_rows: int) -> list[int]:
        """Fill the rows from an address on; those of sequences that take too long, which are looked for where one
        thread makes all masks, or after a slow fill.
        """
        if self._executor is not None and not self._was_slow:
            started_s = time.monotonic()
            self._executor.unsafe_compute_mask_ptr(asked, start, self.row_bytes, num_rows)
            self._was_slow = time.monotonic() - started_s > _SLOW_S
            return []
        too_slow = []
        begun_s = before_s = time.thread_time()  # a busy machine is no grammar's fault
        for matcher, row in asked:
            matcher.unsafe_compute_mask_ptr(start + row * self.row_bytes, self.row_bytes)
            now_s = time.thread_time()
            if now_s - before_s > _MASK_LIMIT_S:
                too_slow.append(row)
            before_s = now_s
        self._was_slow = before_s - begun_s > _SLOW_S
        return too_slow
