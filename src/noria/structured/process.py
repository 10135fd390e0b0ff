"""The grammar process: reads grammars and says which tokens may come next. Started by `structured.helper`.

A process of its own, because reading a vocabulary holds an interpreter up for some tenths of a second. A child of it
tries grammars out (`structured.vetting`): what a stranger's does must not happen to those that are followed. What takes
long to read is followed where it was tried out (`structured.followers`).
"""

from __future__ import annotations

import gc
import io
import logging
import os
import socket
import sys
import threading
from queue import SimpleQueue

from llguidance import LLTokenizer

from noria.structured import wire
from noria.structured.followers import Followers, Offering, Sequences, handover
from noria.structured.mask_memory import MaskMemory
from noria.structured.matchers import Matchers
from noria.structured.vetting import Vetting
from noria.structured.vocabulary import build_vocabulary, special_texts
from noria.tokenize.tokenizer import build_tokenizer

log = logging.getLogger(__name__)

_BROKEN = 2  # exit status
_QUICK_NICENESS, _SLOW_NICENESS = 3, 10


class Preparer:
    """Compiles what has been found to end, on threads that come after those of the model and of the masks."""

    def __init__(self, sequences: Sequences, channel: wire.Channel) -> None:
        self._sequences = sequences
        self._channel = channel
        self._sending = threading.Lock()
        self._quick: SimpleQueue[wire.Prepare] = SimpleQueue()
        self._slow: SimpleQueue[wire.Prepare] = SimpleQueue()
        for _ in range(wire.NUM_QUICK):
            self._start(self._quick, _QUICK_NICENESS)
        self._start(self._slow, _SLOW_NICENESS)

    def add(self, command: wire.Prepare) -> None:
        (self._slow if command.is_slow else self._quick).put(command)

    def _start(self, commands: SimpleQueue[wire.Prepare], niceness: int) -> None:
        threading.Thread(target=self._run, args=(commands, niceness), daemon=True).start()

    def _run(self, commands: SimpleQueue[wire.Prepare], niceness: int) -> None:
        if sys.platform == "linux":  # where a thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        while True:
            command = commands.get()
            error = self._error_of(command)
            with self._sending:
                self._channel.send(wire.Prepared(command.serial, error))

    def _error_of(self, command: wire.Prepare) -> str | None:
        """What is wrong with the grammar, or with this process: whoever waits hears of it, and the thread goes on."""
        try:
            return self._sequences.prepare(command)
        except BaseException as error:  # a panic is no Exception
            log.exception("a grammar could not be made ready")
            return f"it could not be made ready: {type(error).__name__}"


def _fill_masks(sequences: Sequences, channel: wire.Channel, memory: MaskMemory) -> None:
    """A fault here ends the process: the engine would wait for an answer."""
    try:
        _answer_all(sequences, channel, memory)
    finally:
        os._exit(_BROKEN)


def _answer_all(sequences: Sequences, channel: wire.Channel, memory: MaskMemory) -> None:
    while True:
        asked: wire.Fill = channel.receive()
        channel.send(sequences.fill(asked, memory))


def _vocabulary(setup: wire.Setup) -> tuple[LLTokenizer, dict[str, int]]:
    """And the special tokens that may stand within an output, by their text."""
    tokenizer = build_tokenizer(setup.tokenizer)
    vocabulary = build_vocabulary(tokenizer, setup.vocab_size, setup.eos_token_ids)
    return vocabulary, special_texts(tokenizer, setup.vocab_size, setup.eos_token_ids)


def serve(control: wire.Channel, steps: wire.Channel, sequences: Sequences, memory: MaskMemory) -> None:
    """Until the engine is gone, which ends it with EOFError or OSError."""
    preparer = Preparer(sequences, control)
    threading.Thread(target=_fill_masks, args=(sequences, steps, memory), daemon=True).start()
    while True:
        command = control.receive()
        if isinstance(command, wire.Prepare):
            preparer.add(command)
        else:
            sequences.forget(command.names)


def main(arguments: list[str]) -> None:
    """arguments: the descriptors of the sockets, and of the masks."""
    # An interrupt of the terminal is the engine's to answer. In its session still: priorities count within one.
    os.setpgid(0, 0)
    *sockets, masks = map(int, arguments)
    ends = [socket.socket(fileno=descriptor) for descriptor in sockets]
    kinds = (wire.Command, wire.Fill, wire.Vet)
    control, steps, vetting = (wire.Channel(end, kind) for end, kind in zip(ends, kinds, strict=True))
    try:
        vocabulary, special = _vocabulary(control.receive())
        gc.freeze()  # what lives as long as the process is not looked through again and again
        offers, taken = handover()
        if os.fork() == 0:  # before there are threads
            control.close_here()
            steps.close_here()
            taken.close()
            os.close(masks)
            Vetting(vocabulary, vetting, special, lambda: Offering(vocabulary, offers)).serve()
        vetting.close_here()
        offers.close()
        matchers = Matchers(vocabulary)
        sequences = Sequences(matchers, Followers(taken, matchers.row_bytes))
        serve(control, steps, sequences, MaskMemory(io.FileIO(masks, "r+"), matchers.row_bytes))
    except (EOFError, OSError):
        os._exit(0)  # the engine is gone; threads that hang are no reason to stay


if __name__ == "__main__":
    main(sys.argv[1:])
