"""Any order of arrivals, cancellations, failures and steps, on pools so small that everything happens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from noria.config.engine import AdmissionPolicy, SchedulingPolicy, StepCost
from noria.config.tenant import Tenant
from noria.core.outputs import FinishReason
from support_engine import Harness, engine_config, solo_output

CONFIGS = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(5, 14),
        "block_size": st.sampled_from([1, 2, 4]),
        "prefix": st.booleans(),
        "max_num_seqs": st.integers(1, 5),
        "max_num_batched_tokens": st.integers(5, 24),
        "enable_chunked_prefill": st.booleans(),
        "admission_policy": st.sampled_from(AdmissionPolicy),
        "scheduling_policy": st.sampled_from(SchedulingPolicy),
        # Steps of 3 to 10 tokens, then fewer the longer the context is.
        "step_cost": st.none() | st.sampled_from([StepCost(10, 0, 1, 0.3), StepCost(10, 2, 2.5, 4)]),
    }
)


class AnyLife(RuleBasedStateMachine):
    """Every request that is left alone ends with the output it has alone; blocks are exact after every step."""

    @initialize(values=CONFIGS)
    def start(self, values: dict) -> None:
        if not values["enable_chunked_prefill"]:  # what the resolver enforces
            values["max_num_batched_tokens"] = max(
                values["max_num_batched_tokens"], values["num_blocks"] * values["block_size"]
            )
            values["step_cost"] = None
        self.harness = Harness(engine_config(**values))
        self.max_len = values["num_blocks"] * values["block_size"]
        self.expected: dict[str, list[int]] = {}
        self.gone: set[str] = set()
        self.failing: set[str] = set()
        self.num_requests = 0

    @rule(
        data=st.data(),
        salt=st.sampled_from(["", "other"]),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from([Tenant("a"), Tenant("b", weight=3)]),
        scored=st.sampled_from([None, 0]),
    )
    def arrive(
        self, data: st.DataObject, salt: str, priority: int, tenant: Tenant, scored: int | None
    ) -> None:
        # Two tokens only, so that prompts share prefixes and whole prompts repeat.
        prompt = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=self.max_len - 1))
        max_tokens = data.draw(st.integers(0, self.max_len - len(prompt)))
        name = f"r{self.num_requests}"
        self.num_requests += 1
        params = {"max_tokens": max_tokens, "prompt_logprobs": scored}
        self.harness.add(name, prompt, priority=priority, salt=salt, tenant=tenant, **params)
        self.expected[name] = solo_output(prompt, max_tokens)

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._open()))
        self.harness.loop.cancel([name])
        self.gone.add(name)

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def fail_when_it_next_samples(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._open()))
        self.harness.runner.failing.add(name)
        self.failing.add(name)

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def sit_out_the_next_step_it_samples_in(self, data: st.DataObject) -> None:
        self.harness.runner.unready.add(data.draw(st.sampled_from(self._open())))

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        self.harness.step(count)

    @invariant()
    def accounts_are_exact(self) -> None:
        if hasattr(self, "harness"):
            self.harness.scheduler.check()

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.run()
        scheduler = self.harness.scheduler
        assert scheduler.kv.num_blocks_used == 0
        assert scheduler.kv.holders() == set()
        assert self.harness.runner.known_requests == set()
        for name, expected in self.expected.items():
            last, output = self.harness.last(name), self.harness.output(name)
            if last.finish is FinishReason.LENGTH:
                assert output == expected, name
            else:
                assert name in (self.gone if last.finish is FinishReason.ABORT else self.failing)
                assert output == expected[: len(output)], name

    def _open(self) -> list[str]:
        finished = {delta.request_id for delta in self.harness.deltas if delta.finish}
        return [name for name in self.expected if name not in finished | self.gone]


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
