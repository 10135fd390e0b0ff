"""Decoding rules in an engine: they do what they say, and whatever they do, others do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from noria import LLM, RequestError, Rule, SamplingParams
from noria.config.errors import PluginError
from noria.offline.outputs import CompletionOutput
from noria.rules import constraints
from noria.rules.process import Late
from noria.sampling.grammar import Grammar
from support_models import EOS_TOKEN_ID, cached_checkpoint
from support_rules import rules_installed

LIMIT_S = 5.0  # rules that answer have to, too
PROMPTS = ["The water wheel", "Count from one", "A request that", "Its buckets"]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with rules_installed(tmp_path_factory.mktemp("site") / "packages"):
        settings: dict[str, Any] = {"num_gpu_blocks_override": 48, "rule_time_limit_s": LIMIT_S}
        with LLM(str(cached_checkpoint("llama")), backend="torch", show_progress=False, **settings) as made:
            yield made


def params(rule: str | None = None, arguments: dict[str, Any] | None = None, **more: Any) -> SamplingParams:
    asked = None if rule is None else Rule(rule, arguments or {})
    return SamplingParams(**{"temperature": 0, "max_tokens": 10, "rule": asked, **more})


def outputs(llm: LLM, *asked: SamplingParams) -> list[CompletionOutput]:
    results = llm.generate([PROMPTS[i % len(PROMPTS)] for i in range(len(asked))], asked, show_progress=False)
    return [output for result in results for output in result.outputs]


def test_a_rule_decides_every_token_and_the_end(llm: LLM) -> None:
    (output,) = outputs(llm, params("only", {"ids": [40, 41, 42]}))
    assert (output.token_ids, output.finish_reason) == ([40, 41, 42, EOS_TOKEN_ID], "stop")


def test_each_of_n_has_a_rule_of_its_own(llm: LLM) -> None:
    for output in outputs(llm, params("only", {"ids": [7, 9]}, n=3, temperature=1)):
        assert output.token_ids == [7, 9, EOS_TOKEN_ID]


def test_adjusted_logits_are_sampled_from_and_logprobs_stay_the_model_s(llm: LLM) -> None:
    (output,) = outputs(llm, params("last", max_tokens=4, logprobs=0))
    prompt = llm.tokenizer.encode(PROMPTS[0])
    assert output.token_ids == [prompt[-1] + 1 + i for i in range(4)]
    (forced,) = outputs(llm, params("only", {"ids": output.token_ids}, max_tokens=4, logprobs=0))
    assert output.logprobs == forced.logprobs


def test_a_rule_that_allows_everything_changes_nothing(llm: LLM) -> None:
    for seed in (None, 7):
        plain = outputs(llm, *[params(seed=seed, temperature=0 if seed is None else 1)] * 4)
        ruled = [
            params("same", {"as_flags": flags}, seed=seed, temperature=0 if seed is None else 1)
            for flags in (True, False, True, False)
        ]
        assert [one.token_ids for one in outputs(llm, *ruled)] == [one.token_ids for one in plain]


def test_a_rule_and_a_grammar_hold_together(llm: LLM) -> None:
    grammar = Grammar("choice", '["wheel", "water", "batch"]')
    ids = llm.tokenizer.encode("water", add_special_tokens=False)
    (output,) = outputs(llm, params("only", {"ids": list(ids)}, grammar=grammar))
    assert output.text == "water"
    (contrary,) = outputs(llm, params("only", {"ids": [3]}, grammar=grammar))
    assert contrary.error == "its grammar and its decoding rule allow no token in common"


def test_a_rule_goes_on_where_it_was_when_its_request_was_preempted(llm: LLM) -> None:
    # 48 blocks of 16 tokens hold three of these: the others wait, or yield and come back.
    num_before = sum(record.num_preemptions for record in llm.client.recorder.requests())
    ids = [i % 200 + 20 for i in range(250)]
    found = outputs(llm, *[params("only", {"ids": ids}, max_tokens=251)] * 6)
    assert [output.token_ids for output in found] == [[*ids, EOS_TOKEN_ID]] * 6
    assert sum(record.num_preemptions for record in llm.client.recorder.requests()) > num_before


@pytest.mark.parametrize("rule", ["troubled", "troubled-later"])
def test_rules_in_trouble_fail_alone_and_hold_others_up_once(
    llm: LLM, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, num_late = constraints.exchange, []

    def watched(questions: Any, limit_s: float) -> Any:
        told = exchange(questions, limit_s)
        if limit_s == LIMIT_S and any(isinstance(one, Late) for one in told.values()):
            num_late.append(sum(isinstance(one, Late) for one in told.values()))
        return told

    monkeypatch.setattr(constraints, "exchange", watched)
    good = [params(), params("only", {"ids": [40] * 9}), params(seed=3, temperature=1)]
    alone = outputs(llm, *good)
    ways = ("loops", "raises", "sleeps", "dies", "loops")
    bad = [params(rule, {"how": how, "after": 3}) for how in ways]
    found = outputs(llm, *good, *bad)
    assert [one.token_ids for one in found[:3]] == [one.token_ids for one in alone]
    assert all(len(one.token_ids) == 3 and one.finish_reason == "error" for one in found[3:])
    late = f"longer than {LIMIT_S:g} s"
    reasons = {"loops": late, "sleeps": late, "raises": "KeyError", "dies": "ended"}
    for output, how in zip(found[3:], ways, strict=True):
        assert output.error is not None and reasons[how] in output.error
    assert num_late == [3]  # all of them in one step


@pytest.mark.parametrize(
    ("rule", "kind", "message"),
    [
        ("none-such", RequestError, "there is no decoding rule 'none-such'"),
        ("only", RequestError, "refuses its arguments: KeyError: 'ids'"),
        ("gone", PluginError, "of rules-pack 1.0 failed: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_made_is_refused_before_it_is_queued(
    llm: LLM, rule: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        outputs(llm, params(rule))
    assert len(outputs(llm, params())) == 1
