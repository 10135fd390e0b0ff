"""What has grammars read answers whatever happens to the process that reads them."""

from __future__ import annotations

import resource
import socket

import pytest

from noria.config.errors import EngineError
from noria.sampling.grammar import KINDS, Grammar
from noria.structured import wire
from noria.structured.matchers import Compiled
from noria.structured.preparing import Preparing
from noria.structured.reading import GrammarFault


def test_who_asks_hears_of_it_where_no_process_can_be_started() -> None:
    def setup() -> wire.Setup:
        raise OSError("no memory")

    preparing = Preparing(setup)
    for _ in range(2):  # the one who asks next is told as well
        asked = preparing.ask(Grammar("regex", "a"), {"a": ()})
        with pytest.raises(EngineError, match="cannot be started: no memory"):
            asked.result(timeout=10)
    preparing.close()
    with pytest.raises(EngineError, match="shut down"):
        preparing.ask(Grammar("regex", "a"), {"a": ()}).result(timeout=10)


def test_a_channel_of_any_descriptor_tells_whether_there_is_news() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2048), hard))
    try:
        pairs = [socket.socketpair() for _ in range(520)]  # more than `select` can count
        ours, theirs = pairs[-1]
        assert ours.fileno() > 1024
        channel = wire.Channel(ours, wire.Filled)
        assert not channel.has_news(0.0)
        wire.Channel(theirs, wire.Fill).send(wire.Filled(b"", {}, ()))
        assert channel.has_news(10.0)
        assert channel.receive() == wire.Filled(b"", {}, ())
        channel.close()
        assert channel.has_news(0.0)  # `receive` tells that there will be none
    finally:
        for pair in pairs:
            for end in pair:
                end.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "1", '{"structures": 1}', '{"structures": [{}]}', "\ud83d"]
)
def test_any_text_of_any_kind_is_a_grammar_or_at_fault(kind: str, text: str) -> None:
    compiled = Compiled(_letters())
    for _ in range(2):  # the second time what was found out is told again
        try:
            assert compiled.find(kind, text) is not None
        except GrammarFault as fault:
            assert str(fault)


def _letters() -> object:
    import llguidance

    class Letters(llguidance.TokenizerWrapper):
        def __init__(self) -> None:
            self.is_tokenizer_wrapper = True
            self.eos_token_id, self.bos_token_id = 256, None
            self.tokens = [*(bytes([i]) for i in range(256)), b"<end>"]
            self.special_token_ids = [256]

        def __call__(self, text: str | bytes) -> list[int]:
            return list(text.encode() if isinstance(text, str) else text)

    return llguidance.LLTokenizer(Letters(), n_vocab=257, eos_token=[256])
