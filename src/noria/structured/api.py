"""The seam between the engine's loop and whatever says which tokens a request may choose."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams

if TYPE_CHECKING:
    from noria.core.plan import StepPlan, StepResult
    from noria.engine.messages import EngineRequest
    from noria.sampling.grammar import Grammar
    from noria.sampling.rule import Rule
    from noria.sampling.token_masks import Masks


def grammar_of(request: EngineRequest) -> Grammar | None:
    params = request.params
    return params.grammar if isinstance(params, SamplingParams) else None


def rule_of(request: EngineRequest) -> Rule | None:
    params = request.params
    return params.rule if isinstance(params, SamplingParams) else None


class Constraints(Protocol):
    """Knows, of each request whose params say is_constrained, which tokens may come next."""

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        """Get ready for requests of one user that are about to be taken, all or some of them constrained.

        From any thread, and returns at once. The future raises RequestError for what cannot be made sense of in
        time, EngineError where nobody could find out. Whatever was got ready is kept until it is told to `forget`.
        """
        ...

    def masks_for(self, plan: StepPlan) -> Masks | None:
        """What the requests that sample in a step may choose; None: all of them anything.

        On the engine's thread, while the step computes, and as soon as can be: who is not known of at the moment is
        unready, for a request that never will be again there is a failure.
        """
        ...

    def accept(self, result: StepResult) -> None:
        """Follow what was sampled. On the engine's thread."""
        ...

    def forget(self, request_ids: Sequence[str]) -> None:
        """Of requests that have ended, or never began. From any thread; others are ignored."""
        ...

    def shutdown(self) -> None:
        """End threads and processes. Nothing is asked afterwards."""
        ...


class NoConstraints:
    """Of an engine that cannot constrain outputs: refuses to."""

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        refusal: Future[None] = Future()
        grammar = next(filter(None, map(grammar_of, requests)), None)
        text = "this engine cannot hold an output to a grammar or a decoding rule"
        refusal.set_exception(RequestError(text, "sampler" if grammar is None else grammar.field))
        return refusal

    def masks_for(self, plan: StepPlan) -> Masks | None:
        return None

    def accept(self, result: StepResult) -> None:
        pass

    def forget(self, request_ids: Sequence[str]) -> None:
        pass

    def shutdown(self) -> None:
        pass
