"""Decoding rules for tests, in a package that is put on the path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support_plugins import install, on_path

RULES = """
import os, signal, sys, time
import numpy as np

class Only:
    'Allows the listed tokens in turn, then the end.'
    def __init__(self, arguments, model):
        self.ids = list(arguments["ids"])
        self.ends = model.eos_token_ids
    def allowed(self, prompt_ids, output_ids):
        left = self.ids[len(output_ids):]
        return left[:1] or self.ends

class Same:
    'Allows everything, by None or by ids, and checks what it is told.'
    def __init__(self, arguments, model):
        self.as_flags = arguments.get("as_flags", False)
        self.size = model.vocab_size
    def allowed(self, prompt_ids, output_ids):
        assert isinstance(prompt_ids, tuple) and prompt_ids
        return np.ones(self.size, bool) if self.as_flags else None

class Last:
    'Makes the token whose id is one more than the last one by far the likeliest.'
    def __init__(self, arguments, model):
        self.size = model.vocab_size
    def adjust(self, prompt_ids, output_ids, logits):
        last = (output_ids or prompt_ids)[-1]
        logits[(last + 1) % self.size] += 1000
        return logits

class Troubled:
    'Goes wrong in the stated way once the output has so many tokens.'
    def __init__(self, arguments, model):
        self.how, self.after = arguments["how"], arguments.get("after", 2)
        if self.how == "init loops":
            while True: pass
    def _go_wrong(self):
        if self.how == "raises": raise KeyError("no such bucket")
        if self.how == "exits": sys.exit(3)
        if self.how == "dies": os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "sleeps": time.sleep(3600)
        if self.how == "is deaf":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while self.how in ("loops", "is deaf"): pass
    def allowed(self, prompt_ids, output_ids):
        if len(output_ids) < self.after: return None
        self._go_wrong()
        return {"nothing": [], "too large": [10 ** 6], "words": ["a"], "flags": np.ones(3, bool)}[self.how]

class TroubledLater(Troubled):
    'The same, of logits.'
    def allowed(self, prompt_ids, output_ids): return None
    def adjust(self, prompt_ids, output_ids, logits):
        if len(output_ids) < self.after: return logits
        self._go_wrong()
        return {"short": logits[:3], "nan": logits * np.nan, "words": "abc"}[self.how]

class Hollow:
    pass
"""

POINTS = {
    "only": "rules_for_tests:Only",
    "same": "rules_for_tests:Same",
    "last": "rules_for_tests:Last",
    "troubled": "rules_for_tests:Troubled",
    "troubled-later": "rules_for_tests:TroubledLater",
    "hollow": "rules_for_tests:Hollow",
    "gone": "no_such_module:Gone",
    "exploding": "rules_that_explode:Any",
}


@contextmanager
def rules_installed(directory: Path) -> Iterator[None]:
    modules = {"rules_for_tests": RULES, "rules_that_explode": "raise RuntimeError('on import')"}
    install(directory, "rules-pack", {"noria.samplers": POINTS}, modules)
    with on_path(directory):
        yield
