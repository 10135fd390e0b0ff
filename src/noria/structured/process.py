"""The grammar process: reads grammars and says which tokens may come next. Started by `structured.helper`.

A process of its own, because reading a vocabulary holds an interpreter up for some tenths of a second, and because what
a stranger's grammar does to it must not happen to the engine.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import sys
import threading
import time

from noria.structured import wire
from noria.structured.mask_memory import MaskMemory
from noria.structured.matchers import Matchers
from noria.structured.reading import GrammarFault
from noria.structured.vocabulary import build_vocabulary
from noria.tokenize.tokenizer import build_tokenizer

TIME_LIMIT_S = 5.0  # to compile a grammar
_NUM_THREADS = 4
_MAX_HUNG = 2  # threads that may be lost to grammars that take longer
_LOOK_EVERY_S = 0.1
_BROKEN, _HUNG = 2, 3  # exit status


class _Preparation:
    """A grammar that is being compiled. started_s: when a thread began."""

    def __init__(self, command: wire.Prepare) -> None:
        self.command = command
        self.started_s: float | None = None
        self.is_told = False


class Preparer:
    """Compiles on threads, which are lost to what takes longer than it may: nothing can end them."""

    def __init__(self, matchers: Matchers, channel: wire.Channel) -> None:
        self._matchers = matchers
        self._channel = channel
        self._lock = threading.Lock()  # guards what follows, and sending
        self._work = threading.Condition(self._lock)
        self._waiting: list[_Preparation] = []
        self._running: list[_Preparation] = []
        for _ in range(_NUM_THREADS):
            self._add_thread()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, command: wire.Prepare) -> None:
        with self._work:
            self._waiting.append(_Preparation(command))
            self._work.notify()

    def look(self) -> None:
        """Give up what takes too long; and everything, when it is too much."""
        now_s = time.monotonic()
        with self._lock:
            late = [one for one in self._running if one.started_s is not None and not one.is_told]
            for one in late:
                if one.started_s is not None and now_s - one.started_s > TIME_LIMIT_S:
                    self._tell(one, f"it takes more than {TIME_LIMIT_S:g} s to read")
                    self._add_thread()
            if sum(one.is_told for one in self._running) > _MAX_HUNG:
                os._exit(_HUNG)

    def _add_thread(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._waiting)
                preparation = self._waiting.pop(0)
                preparation.started_s = time.monotonic()
                self._running.append(preparation)
            error = self._prepare(preparation.command)
            with self._lock:
                self._running.remove(preparation)
                if preparation.is_told:
                    self._matchers.forget(tuple(preparation.command.outputs))
                    return  # another thread has its place
                self._tell(preparation, error)

    def _prepare(self, command: wire.Prepare) -> str | None:
        try:
            self._matchers.add(command.kind, command.text, command.outputs)
        except GrammarFault as fault:
            return str(fault)
        return None

    def _tell(self, preparation: _Preparation, error: str | None) -> None:
        preparation.is_told = True
        self._channel.send(wire.Prepared(preparation.command.serial, error))


def _fill_masks(matchers: Matchers, channel: wire.Channel, memory: MaskMemory) -> None:
    """A fault here ends the process: the engine would wait for an answer."""
    try:
        _answer_all(matchers, channel, memory)
    finally:
        os._exit(_BROKEN)


def _answer_all(matchers: Matchers, channel: wire.Channel, memory: MaskMemory) -> None:
    while True:
        asked: wire.Fill = channel.receive()
        channel.send(matchers.fill(asked, memory))


def serve(control: wire.Channel, steps: wire.Channel, masks: io.FileIO) -> None:
    """Until the engine is gone."""
    setup: wire.Setup = control.receive()
    vocabulary = build_vocabulary(build_tokenizer(setup.tokenizer), setup.vocab_size, setup.eos_token_ids)
    matchers = Matchers(vocabulary)
    preparer = Preparer(matchers, control)
    memory = MaskMemory(masks, matchers.row_bytes)
    gc.freeze()  # what lives as long as the process is not looked through again and again
    threading.Thread(target=_fill_masks, args=(matchers, steps, memory), daemon=True).start()
    while True:
        preparer.look()
        if not control.has_news(_LOOK_EVERY_S if preparer.is_busy else None):
            continue
        command = control.receive()
        if isinstance(command, wire.Prepare):
            preparer.add(command)
        else:
            matchers.forget(command.request_ids)


def main(arguments: list[str]) -> None:
    """arguments: the descriptors of both sockets, and of the masks."""
    *sockets, masks = map(int, arguments)
    control, steps = (socket.socket(fileno=descriptor) for descriptor in sockets)
    try:
        serve(wire.Channel(control, wire.Command), wire.Channel(steps, wire.Fill), io.FileIO(masks, "r+"))
    except (EOFError, OSError):
        os._exit(0)  # the engine is gone; threads that hang are no reason to stay


if __name__ == "__main__":
    main(sys.argv[1:])
