from __future__ import annotations

from typing import Any

import pytest

from noria.core.outputs import Delta
from noria.engine.messages import GenerateRequest
from support_server import Server, chunks, logprobs_of, says, tokenizer

EMOJI = "wheel 🦭 ok"  # four tokens to the animal


def ids_of(text: str, special: bool = False) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=special)


def test_a_whole_answer_has_exactly_the_documented_shape(server: Server) -> None:
    answer = server.complete().json()
    assert answer.pop("id").startswith("cmpl-")
    assert isinstance(answer.pop("created"), int)
    num_prompt = len(ids_of("The water", special=True))
    assert answer == {
        "object": "text_completion",
        "model": "wheel",
        "choices": [
            {
                "index": 0,
                "text": "the wheel turns",
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": 5,
            "total_tokens": num_prompt + 5,
        },
    }


def test_a_stream_has_exactly_the_documented_shape(server: Server) -> None:
    received = chunks(server.complete(stream=True))
    for chunk in received:
        assert set(chunk) == {"id", "object", "created", "model", "choices"}
        assert chunk["object"] == "text_completion"
    choices = [chunk["choices"][0] for chunk in received]
    for choice in choices:
        assert set(choice) == {"index", "text", "logprobs", "finish_reason", "stop_reason"}
    assert "".join(choice["text"] for choice in choices) == "the wheel turns"
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("The water", [ids_of("The water", special=True)]),
        (["The", "water"], [ids_of("The", special=True), ids_of("water", special=True)]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
def test_a_prompt_may_be_text_or_ids_one_or_several(
    server: Server, prompt: Any, prompts: list[list[int]]
) -> None:
    answer = server.complete(prompt=prompt, n=2).json()
    submitted = [list(request.prompt_token_ids) for request in server.engine.submitted]
    assert submitted == [ids for ids in prompts for _ in range(2)]
    assert [choice["index"] for choice in answer["choices"]] == list(range(2 * len(prompts)))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert answer["usage"]["completion_tokens"] == 5 * 2 * len(prompts)


def test_a_choice_belongs_to_the_prompt_of_its_index(server: Server) -> None:
    def echo_first(request: GenerateRequest) -> list[Delta]:
        return says(f"prompt {request.prompt_token_ids[0]} seed {request.seed}", ends=True)(request)

    server.engine.script = echo_first
    fields = {"prompt": [[5], [6], [7]], "n": 2, "seed": 3, "max_tokens": 30}
    expected = [f"prompt {p} seed {3 + i}" for p in (5, 6, 7) for i in range(2)]
    assert [choice["text"] for choice in server.complete(**fields).json()["choices"]] == expected
    texts = [""] * 6
    for chunk in chunks(server.complete(stream=True, **fields)):
        choice = chunk["choices"][0]
        texts[choice["index"]] += choice["text"]
    assert texts == expected


BAD_PROMPTS = (
    "", [""], [], [[]], ["a", ""], [[5], []], None, 5, True, {"a": 1}, [True], [5.5], [[5], "a"], ["a", 5],
    [5, "a"], [[5.5]], [[True]], [None], [[[5]]], [-1], [[10**30]], [500],
)  # fmt: skip


@pytest.mark.parametrize("prompt", BAD_PROMPTS)
def test_an_empty_or_impossible_prompt_is_refused_before_the_engine(server: Server, prompt: Any) -> None:
    answer = server.complete(prompt=prompt)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"
    assert not server.engine.submitted


def test_a_missing_prompt_is_refused(server: Server) -> None:
    answer = server.client.post("/v1/completions", json={"model": "wheel"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


def test_special_tokens_follow_the_tokenizer_unless_the_request_says(server: Server) -> None:
    for stated, expected in ((None, True), (True, True), (False, False)):
        server.complete(add_special_tokens=stated)
        prompt = list(server.engine.submitted[-1].prompt_token_ids)
        assert prompt == ids_of("The water", special=expected)


@pytest.mark.parametrize("prompt", ["The water", [5, 6, 7]])
def test_echo_gives_the_prompt_back_before_the_answer(server: Server, prompt: Any) -> None:
    text = prompt if isinstance(prompt, str) else tokenizer().decode(prompt)
    whole = server.complete(prompt=prompt, echo=True).json()["choices"][0]["text"]
    assert whole == text + "the wheel turns"
    streamed = [
        chunk["choices"][0]["text"]
        for chunk in chunks(server.complete(prompt=prompt, echo=True, stream=True))
    ]
    assert streamed[0] == text
    assert "".join(streamed) == whole


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("prompt", ["The water wheel", [5, 6, 7], EMOJI, [9]])
def test_scoring_returns_the_prompt_with_one_entry_a_token(
    server: Server, prompt: Any, max_tokens: int
) -> None:
    answer = server.complete(prompt=prompt, echo=True, logprobs=1, max_tokens=max_tokens).json()
    choice = answer["choices"][0]
    prompt_ids = ids_of(prompt, special=True) if isinstance(prompt, str) else prompt
    text = prompt if isinstance(prompt, str) else tokenizer().decode(prompt)
    answered = [*ids_of("the wheel turns")][:max_tokens]
    ids = [*prompt_ids, *answered]
    logprobs = choice["logprobs"]

    assert choice["text"] == text + tokenizer().decode(answered)
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == max_tokens
    assert logprobs["tokens"] == [tokenizer().token_text(i) for i in ids]
    assert logprobs["token_logprobs"] == [None, *(logprobs_of(i, 1).logprob for i in ids[1:])]
    assert logprobs["top_logprobs"][0] is None
    for token_id, top in zip(ids[1:], logprobs["top_logprobs"][1:], strict=True):
        made_up = logprobs_of(token_id, 1)
        assert top == {
            tokenizer().token_text(token_id): made_up.logprob,
            tokenizer().token_text(made_up.top[0][0]): -0.25,  # counts where both show as U+FFFD
        }
    assert len(logprobs["text_offset"]) == len(ids)
    for offset, token_id in zip(logprobs["text_offset"], ids, strict=True):
        token = tokenizer().token_text(token_id)
        assert "\ufffd" in token or choice["text"][offset:].startswith(token)


def test_streamed_scoring_joined_equals_the_whole(server: Server) -> None:
    fields = {"prompt": EMOJI, "echo": True, "logprobs": 2, "max_tokens": 3, "n": 2}
    whole = server.complete(**fields).json()["choices"]
    streamed = [chunk["choices"][0] for chunk in chunks(server.complete(stream=True, **fields))]
    for choice in whole:
        mine = [item for item in streamed if item["index"] == choice["index"]]
        assert "".join(item["text"] for item in mine) == choice["text"]
        for name, values in choice["logprobs"].items():
            assert [value for item in mine if item["logprobs"] for value in item["logprobs"][name]] == values


def test_prompt_log_probabilities_may_come_in_several_pieces(server: Server) -> None:
    def in_pieces(request: GenerateRequest) -> list[Delta]:
        first, *rest = says("the wheel")(request)
        scored = [
            Delta(request.request_id, prompt_logprobs=(logprobs_of(i, 1),))
            for i in request.prompt_token_ids[1:]
        ]
        return [*scored, Delta(first.request_id, first.token_ids, first.logprobs), *rest]

    fields = {"prompt": "The water wheel turns", "echo": True, "logprobs": 1}
    server.engine.script = in_pieces
    cut = server.complete(**fields).json()["choices"]
    streamed = [chunk["choices"][0] for chunk in chunks(server.complete(stream=True, **fields))]
    server.engine.script = says("the wheel")
    assert server.complete(**fields).json()["choices"] == cut
    assert streamed[0]["text"] == "The water wheel turns"
    assert len(streamed[0]["logprobs"]["tokens"]) == len(ids_of("The water wheel turns", special=True))


def test_of_tokens_with_one_text_the_likeliest_is_reported(server: Server) -> None:
    first, second = [i for i in ids_of("🦭") if tokenizer().token_text(i) == "\ufffd"][:2]

    def script(request: GenerateRequest) -> list[Delta]:
        (delta,) = says("a")(request)
        made_up = type(delta.logprobs[0])(first, -3.0, 2, ((second, -0.5),))
        return [Delta(delta.request_id, (first,), (made_up,), finish=delta.finish)]

    server.engine.script = script
    logprobs = server.complete(logprobs=1, max_tokens=1).json()["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"] == [{"\ufffd": -0.5}]
    assert logprobs["token_logprobs"] == [-3.0]


def test_zero_alternatives_still_report_the_token_itself(server: Server) -> None:
    logprobs = server.complete(logprobs=0, max_tokens=1).json()["choices"][0]["logprobs"]
    token_id = ids_of("the wheel turns")[0]
    assert logprobs["top_logprobs"] == [{"t": logprobs_of(token_id, 0).logprob}]


def test_the_default_length_is_sixteen_tokens(server: Server) -> None:
    server.engine.script = says("again ", ends=False)
    for stated in ({}, {"max_tokens": None}):
        assert server.complete(**stated).json()["usage"]["completion_tokens"] == 16


def test_prompt_log_probabilities_belong_to_the_choice(server: Server) -> None:
    choice = server.complete(prompt=[5, 6], prompt_logprobs=0).json()["choices"][0]
    assert choice["prompt_logprobs"] == [
        None,
        {"6": {"logprob": logprobs_of(6, 0).logprob, "rank": 2, "decoded_token": tokenizer().token_text(6)}},
    ]


@pytest.mark.parametrize(("best_of", "n", "status"), [(1, 1, 200), (2, 2, 200), (1, None, 200), (2, 1, 400)])
def test_best_of_must_equal_n(server: Server, best_of: int, n: int | None, status: int) -> None:
    assert server.complete(best_of=best_of, n=n).status_code == status


@pytest.mark.parametrize("echo", [False, True])
def test_streamed_token_ids_are_the_whole_ones(server: Server, echo: bool) -> None:
    fields = {"prompt": [[5, 6], [7]], "n": 2, "return_token_ids": True, "echo": echo}
    whole = server.complete(**fields).json()["choices"]
    streamed = [chunk["choices"][0] for chunk in chunks(server.complete(stream=True, **fields))]
    for choice in whole:
        mine = [item for item in streamed if item["index"] == choice["index"]]
        assert (
            choice["prompt_token_ids"] == mine[0]["prompt_token_ids"] == [[5, 6], [7]][choice["index"] // 2]
        )
        assert not [item for item in mine[1:] if "prompt_token_ids" in item]
        assert [i for item in mine for i in item.get("token_ids", ())] == choice["token_ids"]
