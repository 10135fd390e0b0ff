"""What crosses between the engine and the processes that read grammars, in msgpack over three pairs of sockets.
The masks themselves are in memory that both have (`structured.mask_memory`).

engine                     what tries grammars out
  vetting  -- Vet -->                        any thread of the engine's; answers come when they come
           <-- Vetted --

engine                     grammar process
  control  -- Setup, Prepare, Forget -->     the same
           <-- Prepared --
  steps    -- Fill -->                       the engine's own thread, one question at a time
           <-- Filled --

The grammar process asks those to which it leaves slow grammars (`structured.followers`) in the same words.

A sequence has a name that no other ever has: one of a request whose id was used before is told from the earlier one,
of which something may still be under way.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from typing import Any

import msgspec

from noria.config.tokenizer import TokenizerSpec
from noria.sampling.grammar import Prologue


class Setup(msgspec.Struct, frozen=True, tag="setup"):
    """The first message. vocab_size: of the model, whose last tokens the tokenizer may not know.
    eos_token_ids: those that end an output.
    """

    tokenizer: TokenizerSpec
    vocab_size: int
    eos_token_ids: tuple[int, ...]


class Vet(msgspec.Struct, frozen=True):
    """Can this be followed? kind, text, prologue, begins_not: as in sampling.grammar. tenant: whose turn it
    takes.
    """

    serial: int
    kind: str
    text: str
    prologue: Prologue | None
    begins_not: str
    tenant: str


class Vetted(msgspec.Struct, frozen=True):
    """source: the grammar in the words of what follows it. is_slow: reading it takes long.
    error: what is wrong with it.
    """

    serial: int
    source: str = ""
    is_slow: bool = False
    error: str | None = None


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Make ready sequences that follow a grammar which has been vetted. outputs: name -> its output so far."""

    serial: int
    source: str
    is_slow: bool
    outputs: dict[str, tuple[int, ...]]


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    names: tuple[str, ...]


class Prepared(msgspec.Struct, frozen=True):
    """error: what is wrong with the grammar."""

    serial: int
    error: str | None = None


class Fill(msgspec.Struct, frozen=True):
    """What may these choose next? news: name -> its tokens since it was last asked about.

    first_row: of the shared memory, where the mask of the first of them goes, a bit a token; the others' follow.
    """

    first_row: int
    news: dict[str, tuple[int, ...]]


class Filled(msgspec.Struct, frozen=True):
    """The rows are filled, but those of sequences in errors, which cannot go on, in unknown, which nobody has prepared
    here, and in late, which are followed and to be asked about again: theirs mean nothing.
    """

    errors: dict[str, str]
    unknown: tuple[str, ...]
    late: tuple[str, ...] = ()


NUM_QUICK = (
    3  # commands to prepare that are worked on at a time, in the order in which they came; of slow ones, one
)

Command = Setup | Prepare | Forget
encode = msgspec.msgpack.Encoder().encode
decode_vetted = msgspec.msgpack.Decoder(Vetted).decode
_HEAD = struct.Struct("<I")


class Channel:
    """One end of a pair of sockets. One thread sends and one receives, at a time."""

    def __init__(self, end: socket.socket, kind: Any) -> None:
        """kind: of what is received."""
        self._socket = end
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def fileno(self) -> int:
        return self._socket.fileno()

    def close_here(self) -> None:
        """In this process alone: others that hold this end go on with it."""
        self._socket.close()

    def send(self, message: msgspec.Struct) -> None:
        """Raises OSError when the other end is gone."""
        content = encode(message)
        self._socket.sendall(_HEAD.pack(len(content)) + content)

    def has_news(self, timeout_s: float | None) -> bool:
        """Whether `receive` has something to begin with, within so long; None waits for it."""
        poll = select.poll()  # select itself knows no descriptor beyond 1023
        try:
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(None if timeout_s is None else 1000 * timeout_s))
        except (OSError, ValueError):  # closed, which `receive` will tell
            return True

    def receive(self) -> Any:
        """The next message, waited for; EOFError when there will be none."""
        (length,) = _HEAD.unpack(self._read(_HEAD.size))
        return self._decode(self._read(length))

    def close(self) -> None:
        """What is being received ends with EOFError."""
        with suppress(OSError):  # the other end has done so
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, length: int) -> bytearray:
        content = bytearray(length)
        view, count = memoryview(content), 0
        while count < length:
            try:
                num_read = self._socket.recv_into(view[count:])
            except OSError:
                num_read = 0
            if num_read == 0:
                raise EOFError("the other end is gone")
            count += num_read
        return content
