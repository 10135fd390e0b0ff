"""The offline API on a small real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from noria import LLM, ConfigError, ModelError, RequestError, SamplingParams
from noria.config.operating_point import write_operating_point
from noria.offline.bars import GenerationBar
from support_config import operating_point
from support_held import held
from support_models import cached_checkpoint

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def model() -> Path:
    return cached_checkpoint("llama")


@pytest.fixture(scope="module")
def llm(model: Path) -> Iterator[LLM]:
    with LLM(model, max_model_len=256, num_gpu_blocks_override=64, show_progress=False) as llm:
        yield llm


def generate(llm: LLM, prompts, params=GREEDY):
    return llm.generate(prompts, params, show_progress=False)


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    results = generate(llm, ["the fox", "the dog", "the fox"])
    assert [result.prompt for result in results] == ["the fox", "the dog", "the fox"]
    assert results[0].outputs[0].token_ids == results[2].outputs[0].token_ids
    assert results[0].outputs[0].token_ids != results[1].outputs[0].token_ids


def test_a_prompt_may_be_text_ids_or_a_mapping_of_either(llm: LLM) -> None:
    ids = llm.tokenizer.encode("the fox")
    forms = ["the fox", ids, np.array(ids), [np.array(ids)], {"prompt": "the fox"}, {"prompt_token_ids": ids}]
    outputs = [generate(llm, form)[0].outputs[0].token_ids for form in forms]
    assert all(output == outputs[0] for output in outputs)
    assert len(generate(llm, [ids, ids])) == 2


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"prompt": "x", "prompt_token_ids": [1]}, "nothing else"),
        ({"text": "x"}, "nothing else"),
        ([["x"]], "'x' in it"),
        ([3.5], "text or a list"),
        ([[1, True]], "True in it"),
        ([[]], "needs at least one token"),
        ([10**6], "must hold token ids from 0 to"),
        ([[1] * 256], "maximum context length is 256"),
    ],
)
def test_a_prompt_of_another_form_is_refused_before_anything_runs(llm: LLM, prompt, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        generate(llm, prompt)


@pytest.mark.parametrize("prompts", [None, 5, b"bytes", [b"bytes"], [None]])
def test_prompts_of_no_kind_are_refused(llm: LLM, prompts) -> None:
    with pytest.raises(RequestError, match=r"prompts? (are|is a) texts? or"):
        generate(llm, prompts)


@pytest.mark.parametrize("messages", [None, "text", {"role": "user", "content": "x"}])
def test_conversations_of_no_kind_are_refused(llm: LLM, messages) -> None:
    with pytest.raises(RequestError, match="a conversation is a list"):
        llm.chat(messages, GREEDY, show_progress=False)


@pytest.mark.parametrize("params", [{"temperature": 0}, [None], "greedy"])
def test_params_of_another_kind_are_refused(llm: LLM, params) -> None:
    with pytest.raises(RequestError, match="sampling params are SamplingParams"):
        generate(llm, ["the"], params)


def test_a_refusal_says_which_prompt_it_is_about(llm: LLM) -> None:
    with pytest.raises(RequestError, match="prompt 2 of 3: This model's maximum context length"):
        generate(llm, ["the", [5] * 300, "fox"])
    with pytest.raises(RequestError, match="prompt 3 of 3: a prompt is a text"):
        generate(llm, ["the", "fox", [None]])


def test_each_prompt_may_have_params_of_its_own(llm: LLM) -> None:
    short, long = (SamplingParams(temperature=0, max_tokens=m, ignore_eos=True) for m in (2, 5))
    results = generate(llm, ["the fox", "the fox"], [short, long])
    assert [len(result.outputs[0].token_ids) for result in results] == [2, 5]
    with pytest.raises(RequestError, match="1 sampling params for 2 prompts"):
        generate(llm, ["a", "b"], [short])


def test_n_outputs_of_a_seed_are_those_of_consecutive_seeds(llm: LLM) -> None:
    together = generate(llm, "the", SamplingParams(n=3, seed=7, max_tokens=8, ignore_eos=True))[0].outputs
    alone = [
        generate(llm, "the", SamplingParams(seed=7 + i, max_tokens=8, ignore_eos=True))[0].outputs[0]
        for i in range(3)
    ]
    assert [output.token_ids for output in together] == [output.token_ids for output in alone]
    assert len({tuple(output.token_ids) for output in together}) == 3


def test_a_logits_processor_decides_and_sees_prompt_and_output(llm: LLM) -> None:
    seen = []

    def only_seven(prompt_ids, output_ids, logits):
        seen.append((list(prompt_ids), list(output_ids)))
        forced = np.full_like(logits, -np.inf)
        forced[7] = 0
        return forced

    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, logits_processors=(only_seven,))
    [result] = generate(llm, [[5, 6]], params)
    assert result.outputs[0].token_ids == [7, 7, 7]
    assert seen == [([5, 6], []), ([5, 6], [7]), ([5, 6], [7, 7])]


def test_bad_words_are_never_written_and_allowed_tokens_alone_are(llm: LLM) -> None:
    [free] = generate(llm, "the", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    words = {token_id: llm.tokenizer.token_text(token_id) for token_id in free.outputs[0].token_ids}
    bad = {token_id: word for token_id, word in words.items() if llm.tokenizer.encode(word) == [token_id]}
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, bad_words=tuple(bad.values()))
    [result] = generate(llm, "the", params)
    assert bad
    assert bad.keys().isdisjoint(result.outputs[0].token_ids)
    params = SamplingParams(max_tokens=8, ignore_eos=True, allowed_token_ids=(7, 9))
    [result] = generate(llm, "the", params)
    assert set(result.outputs[0].token_ids) <= {7, 9}


def test_named_tokens_take_the_place_of_the_likeliest(llm: LLM) -> None:
    fields = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
    [whole] = generate(llm, "the", SamplingParams(logprobs=llm.tokenizer.vocab_size, **fields))
    [named] = generate(llm, "the", SamplingParams(logprobs=2, logprob_token_ids=(9, 7, 8), **fields))
    for every, some in zip(whole.outputs[0].logprobs, named.outputs[0].logprobs, strict=True):
        values = dict(every.top)
        expected = sorted((-values[token_id], token_id) for token_id in (7, 8, 9))
        assert some.top == tuple((token_id, -value) for value, token_id in expected)
        assert (some.token_id, some.logprob, some.rank) == (every.token_id, every.logprob, every.rank)


@pytest.mark.parametrize("fault", [ValueError("my own fault"), SystemExit("my own fault")])
def test_a_processor_that_raises_fails_its_own_request_alone(llm: LLM, fault: BaseException) -> None:
    def broken(prompt_ids, output_ids, logits):
        raise fault

    bad = SamplingParams(temperature=0, max_tokens=3, logits_processors=(broken,))
    failed, fine = generate(llm, ["the fox", "the dog"], [bad, GREEDY])
    assert failed.outputs[0].finish_reason == "error"
    assert "my own fault" in failed.outputs[0].error
    assert fine.outputs[0].token_ids == generate(llm, "the dog")[0].outputs[0].token_ids


def test_a_stop_string_ends_the_output_and_frees_the_sequence(llm: LLM) -> None:
    whole = generate(llm, "the fox")[0].outputs[0].text
    stop = whole[4:6]
    [result] = generate(
        llm, "the fox", SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop=stop)
    )
    assert result.outputs[0].text == whole[: whole.index(stop)]
    assert (result.outputs[0].finish_reason, result.outputs[0].stop_reason) == ("stop", stop)


def test_an_output_that_a_stop_string_ended_is_in_the_records_as_stopped(llm: LLM) -> None:
    whole = generate(llm, "the dog")[0].outputs[0].text
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True, stop=whole[3:5])
    with held(llm.client, (30, lambda asked: asked.num_cancelled >= 1)):
        [result] = generate(llm, "the dog", params)
    record = llm.client.recorder.requests()[-1]
    assert record.request_id.startswith(result.request_id)
    assert record.finish.value == "stop"


def test_without_params_the_makers_recommendation_holds(model: Path, tmp_path: Path) -> None:
    import shutil

    place = tmp_path / "recommending"
    shutil.copytree(model, place)
    (place / "generation_config.json").write_text('{"temperature": 0.0}')
    with LLM(place, max_model_len=64, num_gpu_blocks_override=8, show_progress=False) as llm:
        assert llm.default_params.is_greedy
        again = [generate(llm, "the fox", None)[0].outputs[0].token_ids for _ in range(2)]
    assert again[0] == again[1]
    settings = {"generation_config": "none", "max_model_len": 64, "show_progress": False}
    with LLM(place, num_gpu_blocks_override=8, **settings) as llm:
        assert llm.default_params == SamplingParams()


def test_logprobs_come_a_token_each_for_prompt_and_output(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=2, prompt_logprobs=1)
    [result] = generate(llm, [[5, 6, 7, 8, 9]], params)
    assert [entry.token_id for entry in result.outputs[0].logprobs] == result.outputs[0].token_ids
    assert all(len(entry.top) == 2 and entry.rank == 1 for entry in result.outputs[0].logprobs)
    assert result.prompt_logprobs[0] is None
    assert [entry.token_id for entry in result.prompt_logprobs[1:]] == [6, 7, 8, 9]


def test_prompt_logprobs_are_those_of_transformers(model: Path, llm: LLM) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    ids = [5, 9, 30, 7, 22, 41, 3, 8]
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.inference_mode():
        expected = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    [result] = generate(llm, [ids], SamplingParams(max_tokens=1, prompt_logprobs=0))
    for position, entry in enumerate(result.prompt_logprobs[1:], 1):
        assert entry.logprob == pytest.approx(float(expected[position - 1, ids[position]]), abs=1e-3)


def test_a_chat_is_rendered_by_the_models_template(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "the fox"}]
    [result] = llm.chat(conversation, GREEDY, show_progress=False)
    assert result.prompt == llm.tokenizer.render_chat(conversation)
    two = llm.chat([conversation, conversation], GREEDY, show_progress=False)
    assert [r.outputs[0].token_ids for r in two] == [result.outputs[0].token_ids] * 2


def test_a_stream_joins_to_the_whole_output(llm: LLM) -> None:
    pieces = [news.text for news in llm.stream("the fox", GREEDY)]
    assert "".join(pieces) == generate(llm, "the fox")[0].outputs[0].text


def test_leaving_a_stream_early_frees_its_blocks(llm: LLM) -> None:
    stream = llm.stream("the fox", SamplingParams(temperature=0, max_tokens=200, ignore_eos=True))
    next(stream)
    stream.close()
    generate(llm, "the dog")  # the engine has taken a step since
    assert llm.client.stats().num_blocks_used == 0
    llm.client._loop.scheduler.check()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("logit_bias", {10**6: 1.0}, "logit_bias"),
        ("stop_token_ids", (10**6,), "stop_token_ids"),
        ("logprobs", 10**6, "logprobs"),
    ],
)
def test_params_that_the_vocabulary_does_not_allow_are_refused(llm: LLM, field, value, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        generate(llm, "the", SamplingParams(**{field: value}))


def test_an_unknown_setting_is_refused_with_the_likely_one(model: Path) -> None:
    with pytest.raises(ConfigError, match="max_model_len"):
        LLM(model, max_model_length=5)


def test_a_model_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        LLM(tmp_path / "nowhere")


def test_a_trace_of_what_was_run_can_be_saved(llm: LLM, tmp_path: Path) -> None:
    import json

    generate(llm, ["the fox", "the dog"])
    llm.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event["name"] == "decode" for event in events)


def test_progress_shows_rates_and_counts_every_output(llm: LLM, capsys) -> None:
    llm.generate(["the fox", "the dog"], GREEDY)
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "tokens/s" in shown


def test_progress_of_nothing_is_no_error() -> None:
    with GenerationBar(0):
        pass


def test_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert generate(llm, []) == []


def test_an_operating_point_sets_what_is_not_stated(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "point.json")
    write_operating_point(operating_point(max_num_seqs=5, max_model_len=128, max_num_queued_reqs=9), path)
    stated = {"max_model_len": 256, "num_gpu_blocks_override": 64, "show_progress": False}
    with LLM(model, operating_point=path, **stated) as llm:
        scheduler = llm.resolved.config.scheduler
    assert (scheduler.max_num_seqs, scheduler.max_model_len) == (5, 256)
    [warning] = [record.message for record in caplog.records if "operating point" in record.message]
    assert "was found elsewhere: here the model is" in warning
