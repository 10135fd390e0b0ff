"""Requests whose answers are known beforehand: what a simulated engine is given to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from noria.config.tenant import ANYBODY, Tenant
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams

STOP_TOKEN = 0  # ends a known output; no other token of an arrival is this one


class Ending(str, Enum):
    """What ended an output."""

    LENGTH = "length"  # max_tokens or the context's end
    TOKEN = "token"  # a token that ends it
    CANCEL = "cancel"  # from outside: a stop string, a client that left, a deadline


@dataclass(frozen=True, slots=True)
class Arrival:
    """One sequence. at_s: seconds since the load began.

    # tokens: [0, num_prompt) is the prompt, the rest is the answer to come
    max_tokens: as it was asked for; None: up to the context's end. timeout_s: seconds it has, None for no deadline.
    """

    request_id: str
    at_s: float
    tokens: tuple[int, ...]
    num_prompt: int
    max_tokens: int | None
    ending: Ending = Ending.LENGTH
    prompt_logprobs: int | None = None
    priority: int = 0
    salt: str = ""
    tenant: Tenant = ANYBODY
    timeout_s: float | None = None

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    def request(self) -> GenerateRequest:
        """What is submitted for it."""
        params = SamplingParams(
            temperature=0.0,
            max_tokens=self.max_tokens,
            ignore_eos=True,
            stop_token_ids=(STOP_TOKEN,),
            prompt_logprobs=self.prompt_logprobs,
        )
        prompt = self.tokens[: self.num_prompt]
        return GenerateRequest(
            self.request_id, prompt, params, 0, self.priority, self.salt, self.tenant, self.timeout_s
        )

    def token_after(self, num_known: int) -> int:
        """What is sampled once that many tokens are known."""
        last = len(self.tokens) - 1
        if num_known < last or (num_known == last and self.ending is not Ending.TOKEN):
            return self.tokens[num_known]
        return STOP_TOKEN
