"""Decoding rules in their processes, asked without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from noria.config.errors import OverloadError, PluginError, RequestError
from noria.config.tokenizer import TokenizerSpec
from noria.core.plan import Sampled, StepPlan, StepResult, Work
from noria.engine.messages import GenerateRequest
from noria.rules.api import ModelFacts
from noria.rules.constraints import RuleConstraints
from noria.sampling.params import SamplingParams
from noria.sampling.rule import Rule
from support_rules import rules_installed

VOCAB = 70
PATIENCE_S = 60.0  # for rules that answer
FACTS = ModelFacts(VOCAB, (1,), TokenizerSpec(tokenizer_json="{}"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with rules_installed(tmp_path_factory.mktemp("site") / "packages"):
        yield


@pytest.fixture
def rules(site: None) -> Iterator[RuleConstraints]:
    made = RuleConstraints(FACTS, PATIENCE_S)
    yield made
    made.shutdown()


@contextmanager
def in_haste(rules: RuleConstraints, limit_s: float = 0.5) -> Iterator[None]:
    """Rules that do not answer have so much time while the block lasts."""
    rules._limit_s = limit_s
    yield
    rules._limit_s = PATIENCE_S


def request(name: str, rule: str, arguments: dict[str, Any] | None = None, **params: Any) -> GenerateRequest:
    asked = SamplingParams(rule=Rule(rule, arguments or {}), **params)
    return GenerateRequest(name, (5, 6), asked, 0)


def plan(*names: str) -> StepPlan:
    return StepPlan(0, (), tuple(Work(name, 1, 1, (), True) for name in names), (), ())


def allowed(rules: RuleConstraints, name: str, *others: str) -> list[int] | str | None:
    """Ids, None for all, or why it fails."""
    masks = rules.masks_for(plan(name, *others))
    if masks is None or (name not in masks.rows and name not in masks.failures):
        return None
    if name in masks.failures:
        return masks.failures[name]
    bits = np.unpackbits(masks.bits[masks.rows[name]].view(np.uint8), count=VOCAB, bitorder="little")
    return np.flatnonzero(bits).tolist()


def sampled(rules: RuleConstraints, name: str, token_id: int) -> None:
    rules.accept(StepResult(0, (Sampled(name, (token_id,)),)))


def test_a_rule_follows_the_output_of_its_sequence(rules: RuleConstraints) -> None:
    first, second = request("a", "only", {"ids": [7, 69]}), request("b", "only", {"ids": [8]})
    rules.prepare([first, second]).result()
    assert (allowed(rules, "a", "b"), allowed(rules, "b")) == ([7], [8])
    sampled(rules, "a", 7)
    assert (allowed(rules, "a", "b"), allowed(rules, "b")) == ([69], [8])
    sampled(rules, "a", 69)
    assert allowed(rules, "a") == [1]


def test_a_rule_may_allow_everything_and_answer_in_flags(rules: RuleConstraints) -> None:
    rules.prepare([request("a", "same"), request("b", "same", {"as_flags": True})]).result()
    assert allowed(rules, "a") is None
    assert allowed(rules, "b") == list(range(VOCAB))


def test_min_tokens_withholds_the_end_as_long_as_the_rule_leaves_something_else(
    rules: RuleConstraints,
) -> None:
    rules.prepare([request("a", "same", {"as_flags": True}, min_tokens=1)]).result()
    assert allowed(rules, "a") == [i for i in range(VOCAB) if i != 1]
    sampled(rules, "a", 9)
    assert allowed(rules, "a") == list(range(VOCAB))


def test_a_rule_adjusts_the_logits_of_its_own_row_and_leaves_the_model_s(rules: RuleConstraints) -> None:
    rules.prepare([request("a", "last"), request("b", "same")]).result()
    logits = np.zeros((2, VOCAB), np.float32)
    adjusted, failures = rules.adjusted({"b": 0, "a": 1}, logits)
    assert failures == {} and not logits.any()
    assert np.argwhere(adjusted).tolist() == [[1, 7]]
    sampled(rules, "a", 20)
    adjusted, _ = rules.adjusted({"a": 1}, logits)
    assert np.argwhere(adjusted).tolist() == [[1, 21]]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raises", "KeyError: 'no such bucket'"),
        ("exits", "SystemExit: 3"),
        ("dies", "its process ended"),
        ("loops", "it took longer than 3 s"),
        ("sleeps", "it took longer than 3 s"),
        ("is deaf", "it took longer than 3 s"),
        ("nothing", "allowed returned no token"),
        ("too large", "allowed must return token ids from 0 to 69"),
        ("words", "allowed must return token ids from 0 to 69"),
        ("flags", "allowed returned (3,) flags for 70 tokens"),
    ],
)
def test_a_rule_in_trouble_fails_alone(rules: RuleConstraints, how: str, reason: str) -> None:
    troubled = request("bad", "troubled", {"how": how, "after": 1})
    rules.prepare([request("good", "only", {"ids": [7, 8, 9]})]).result()
    rules.prepare([troubled]).result()
    assert allowed(rules, "bad", "good") is None
    sampled(rules, "bad", 3)
    sampled(rules, "good", 7)
    # The good one has to answer in that time as well.
    with in_haste(rules, 3.0 if "longer" in reason else PATIENCE_S):
        masks = rules.masks_for(plan("bad", "good"))
    assert masks is not None and list(masks.rows) == ["good"]
    assert list(masks.failures) == ["bad"] and reason in masks.failures["bad"]
    rules.forget(["bad"])
    sampled(rules, "good", 8)
    assert allowed(rules, "good") == [9]


@pytest.mark.parametrize(
    ("how", "reason"), [("short", "must return 70"), ("nan", "NaN"), ("words", "ValueError")]
)
def test_logits_that_are_none_are_no_answer(rules: RuleConstraints, how: str, reason: str) -> None:
    rules.prepare([request("a", "troubled-later", {"how": how, "after": 0}), request("b", "last")]).result()
    adjusted, failures = rules.adjusted({"a": 0, "b": 1}, np.zeros((2, VOCAB), np.float32))
    assert list(failures) == ["a"] and reason in failures["a"]
    assert np.argwhere(adjusted).tolist() == [[1, 7]]


@pytest.mark.parametrize(
    ("rule", "arguments", "kind", "reason"),
    [
        (
            "none-such",
            {},
            RequestError,
            "there is no decoding rule 'none-such'; installed here: exploding, gone",
        ),
        ("only", {}, RequestError, "refuses its arguments: KeyError: 'ids'"),
        ("hollow", {}, PluginError, "it has neither allowed nor adjust"),
        ("gone", {}, PluginError, "of rules-pack 1.0 failed: ModuleNotFoundError"),
        ("exploding", {}, PluginError, "of rules-pack 1.0 failed: RuntimeError: on import"),
    ],
)
def test_a_rule_that_cannot_be_made_refuses_its_request(
    rules: RuleConstraints, rule: str, arguments: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind) as caught:
        rules.prepare([request("a", rule, arguments)]).result()
    assert reason in str(caught.value)


def test_a_nursery_that_is_killed_takes_its_rules_along_and_is_replaced(rules: RuleConstraints) -> None:
    rules.prepare([request("a", "only", {"ids": [7]})]).result()
    parent = rules._nursery._parent
    assert parent is not None
    parent.kill()
    parent.wait()
    assert "its process ended" in str(allowed(rules, "a"))
    rules.forget(["a"])
    rules.prepare([request("b", "only", {"ids": [8]})]).result()
    assert allowed(rules, "b") == [8]


def test_no_more_than_so_many_processes_are_made(
    rules: RuleConstraints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noria.rules.constraints._MAX_PROCESSES", 3)
    rules.prepare([request("a", "only", {"ids": [7]})]).result()
    first = rules.prepare([request("b", "only", {"ids": [7]}), request("c", "only", {"ids": [7]})])
    with pytest.raises(OverloadError, match="3 sequences have decoding rules"):
        rules.prepare([request("d", "only", {"ids": [8]})]).result()
    first.result()
    with pytest.raises(RequestError, match="refuses its arguments"):
        rules.forget(["a"])
        rules.prepare([request("e", "only")]).result()
    rules.prepare([request("f", "only", {"ids": [9]})]).result()  # what was refused counts no more
    assert (allowed(rules, "b"), allowed(rules, "f")) == ([7], [9])


def test_arguments_that_are_no_json_object_are_refused() -> None:
    for arguments in ([1], {"a": {1, 2}}, "text"):
        with pytest.raises(RequestError, match=r"sampler\.arguments must be a JSON object"):
            Rule("only", arguments)  # type: ignore[arg-type]


def test_a_rule_that_is_late_in_three_steps_in_a_row_is_refused_from_then_on(rules: RuleConstraints) -> None:
    names = ("a", "b", "c")
    for name in names:
        rules.prepare([request(name, "troubled", {"how": "loops", "after": 0})]).result()
    with in_haste(rules):
        for name in names:
            assert "longer than 0.5 s" in str(allowed(rules, name))
            rules.accept(StepResult(0, ()))
        refused = rules.prepare([request("d", "troubled", {"how": "loops", "after": 0})])
        with pytest.raises(
            RequestError, match=r"longer than 0\.5 s 3 times in a row, and is not used for the next"
        ):
            refused.result()
    rules.prepare([request("e", "only", {"ids": [7]})]).result()
    assert allowed(rules, "e") == [7]


def test_a_rule_that_is_late_with_one_of_its_two_answers_was_late_in_that_step(
    rules: RuleConstraints,
) -> None:
    loops = {"how": "loops", "after": 0}
    names = ("a", "b", "c")
    rules.prepare([request(name, "troubled-later", loops) for name in names]).result()
    for name in names:
        assert allowed(rules, name) is None  # in time
        with in_haste(rules):
            _, failures = rules.adjusted({name: 0}, np.zeros((1, VOCAB), np.float32))
        assert "longer than 0.5 s" in failures[name]
        rules.accept(StepResult(0, ()))
    with pytest.raises(RequestError, match="3 times in a row"):
        rules.prepare([request("d", "troubled-later", loops)]).result()


def test_two_late_answers_in_one_step_count_as_one(rules: RuleConstraints) -> None:
    loops = {"how": "loops", "after": 0}
    rules.prepare([request(name, "troubled", loops) for name in ("a", "b", "c")]).result()
    with in_haste(rules):
        assert "longer than 0.5 s" in str(allowed(rules, "a", "b", "c"))
    rules.accept(StepResult(0, ()))
    rules.prepare([request("d", "troubled", loops)]).result()
