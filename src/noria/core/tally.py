"""What a step did, counted while it is planned and committed, for the records."""

from __future__ import annotations

from dataclasses import dataclass, field

from noria.core.request import Request


@dataclass(slots=True)
class StepTally:
    """Counts of one step, in tokens unless a name says otherwise. Durations in seconds."""

    prefix_queries: int = 0  # prompt tokens looked up in the prefix cache, at a request's first admission
    prefix_hits: int = 0  # of those, found in the prefix cache
    arrived_ids: list[str] = field(default_factory=list)
    preempted_ids: list[str] = field(default_factory=list)
    unready_ids: list[str] = field(default_factory=list)
    num_prompt_tokens: int = 0  # prompt tokens computed for the first time
    num_recomputed_tokens: int = 0
    num_sampled_tokens: int = 0
    ttfts_s: list[float] = field(default_factory=list)
    token_gaps_s: list[float] = field(default_factory=list)

    @property
    def num_preemptions(self) -> int:
        return len(self.preempted_ids)

    def count_lookup(self, request: Request) -> None:
        """Called once the request holds what was found for it."""
        if request.life.num_preemptions == 0:
            self.prefix_queries += request.num_known
            self.prefix_hits += request.num_computed

    def count_computed(self, request: Request, num_new: int) -> None:
        """Called before request.num_computed advances by num_new."""
        start, end = request.num_computed, request.num_computed + num_new
        life = request.life
        once = life.num_computed_once
        if once <= start >= request.num_prompt:  # an output for the first time, as nearly always
            life.num_computed_once = end
            return
        self.num_recomputed_tokens += max(0, min(once, end) - start)
        self.num_prompt_tokens += max(0, min(end, request.num_prompt) - max(start, once))
        life.num_computed_once = max(once, end)

    def count_sampled(self, request: Request, num_tokens: int, now_s: float) -> None:
        life = request.life
        self.num_sampled_tokens += num_tokens
        if life.last_token_s is None:
            life.first_token_s = now_s
            self.ttfts_s.append(now_s - life.arrival_s)
        else:
            self.token_gaps_s.append(now_s - life.last_token_s)
        life.last_token_s = now_s
