"""A runner without a model that believes nothing: it checks every plan against the content of its slots."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noria.config.pooling import PoolingParams
from noria.core.plan import Failure, NewRequest, Numbers, Pooled, Sampled, StepPlan, StepResult, Work
from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import Masks

# (request id, all tokens so far) -> the next token
NextToken = Callable[[str, Sequence[int]], int]


def history_token(request_id: str, tokens: Sequence[int], vocab_size: int = 50) -> int:
    """A next token that depends on the whole history and on nothing else."""
    value = 17
    for token in tokens:
        value = (value * 1000003 + token + 1) % (2**61 - 1)
    return value % vocab_size


def numbers_of(tokens: Sequence[int]) -> Numbers:
    """What is made of a prompt that is pooled."""
    return Numbers((len(tokens),), array("f", tokens).tobytes())


@dataclass
class _Known:
    tokens: list[int]
    table: list[int]
    params: SamplingParams | PoolingParams
    num_seen: int = 0  # of its positions, those computed for itself


class LedgerRunner:
    """Keeps, for every slot, the history whose KV it would hold, and asserts that each computed token attends to
    exactly its own history. Sampled tokens come from `next_token`; of a prompt that is pooled it makes the tokens
    themselves, as numbers.

    failing: request ids that fail when they next sample; faulty: those of them where it is the engine's fault.
    unready: request ids that sit out the next step in which they were to sample. during: called while a step computes.
    """

    def __init__(self, block_size: int, next_token: NextToken = history_token) -> None:
        self.block_size = block_size
        self.next_token = next_token
        self.failing: set[str] = set()
        self.faulty: set[str] = set()
        self.unready: set[str] = set()
        self.during: Callable[[StepPlan], None] = lambda plan: None
        self.plans: list[StepPlan] = []
        self.is_shut_down = False
        self._known: dict[str, _Known] = {}
        self._slots: dict[tuple[int, int], tuple[int, ...]] = {}

    @property
    def known_requests(self) -> set[str]:
        return set(self._known)

    def launch(self, plan: StepPlan) -> StepPlan:
        self.plans.append(plan)
        return plan

    def collect(self, plan: StepPlan, masks: Masks | None = None) -> StepResult:
        self.during(plan)
        for request_id in plan.departures:
            del self._known[request_id]
        for arrival in plan.arrivals:
            self._arrive(arrival)
        contents = [self._block(move.source) for move in plan.moves]
        for move, content in zip(plan.moves, contents, strict=True):
            for offset, history in content.items():
                self._slots[move.destination, offset] = history
        sampled, failures, pooled, unready = [], [], [], []
        for work in plan.work:
            self._compute(work)
        for work in plan.work:
            is_pooled = self._is_pooled(work)
            if not work.samples and not is_pooled:
                continue
            if work.request_id in self.failing:
                failures.append(Failure(work.request_id, "made to fail", work.request_id in self.faulty))
            elif is_pooled:
                pooled.append(Pooled(work.request_id, numbers_of(self._known[work.request_id].tokens)))
            elif work.request_id in self.unready:
                self.unready.remove(work.request_id)
                unready.append(work.request_id)
                self._known[work.request_id].num_seen -= 1
            else:
                sampled.append(self._sample(work))
        return StepResult(plan.step, tuple(sampled), (), tuple(failures), tuple(pooled), tuple(unready))

    @property
    def progress(self) -> int:
        return 0

    def shutdown(self) -> None:
        self.is_shut_down = True

    def _arrive(self, arrival: NewRequest) -> None:
        assert arrival.request_id not in self._known, f"{arrival.request_id} arrived twice"
        self._known[arrival.request_id] = _Known(list(arrival.token_ids), [], arrival.params)

    def _block(self, block: int) -> dict[int, tuple[int, ...]]:
        offsets = range(self.block_size)
        return {offset: self._slots[block, offset] for offset in offsets if (block, offset) in self._slots}

    def _compute(self, work: Work) -> None:
        known = self._known[work.request_id]
        known.table.extend(work.new_blocks)
        end = work.num_computed + work.num_new
        assert 0 < end <= len(known.tokens), f"{work} of {len(known.tokens)} known tokens"
        assert end <= len(known.table) * self.block_size, f"{work} has no slots for its tokens"
        history = tuple(known.tokens)
        known.num_seen += work.num_new
        assert known.num_seen == end or not known.params.needs_every_position, (
            f"{work} was not computed whole"
        )
        for position in range(work.num_computed):
            found = self._slots.get(self._slot(known, position))
            assert found == history[: position + 1], f"{work}: position {position} holds {found}"
        for position in range(work.num_computed, end):
            self._slots[self._slot(known, position)] = history[: position + 1]

    def _is_pooled(self, work: Work) -> bool:
        known = self._known[work.request_id]
        ends = work.num_computed + work.num_new == len(known.tokens)
        return ends and isinstance(known.params, PoolingParams)

    def _slot(self, known: _Known, position: int) -> tuple[int, int]:
        return known.table[position // self.block_size], position % self.block_size

    def _sample(self, work: Work) -> Sampled:
        known = self._known[work.request_id]
        assert work.num_computed + work.num_new == len(known.tokens), f"{work} samples too early"
        token = self.next_token(work.request_id, known.tokens)
        known.tokens.append(token)
        return Sampled(work.request_id, (token,))
