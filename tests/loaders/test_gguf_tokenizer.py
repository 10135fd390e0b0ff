"""Tokenizers as GGUF metadata states them."""

import pytest

from noria.config.errors import ModelError
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from support_gguf import MERGES, MINUTE_SHAPE, MINUTE_TOKENS, byte_level_tokens, write_tiny_gguf


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def open_with(path, **changes):
    write_tiny_gguf(path, shape=MINUTE_SHAPE, tokens=MINUTE_TOKENS, **changes)
    return GgufCheckpoint(path)


def refusal(path, **changes) -> str:
    with pytest.raises(ModelError) as caught:
        open_with(path, **changes)
    return str(caught.value)


def test_the_vocabulary_is_the_metadata_s(path):
    write_tiny_gguf(path)
    spec = GgufCheckpoint(path).tokenizer
    vocabulary = spec.vocabulary
    assert vocabulary is not None and spec.tokenizer_json is None
    assert (vocabulary.kind, vocabulary.pre) == ("gpt2", "smollm")
    assert vocabulary.tokens == tuple(byte_level_tokens())
    assert vocabulary.merges == MERGES
    assert vocabulary.token_types == (3, 3, 3) + (1,) * (len(byte_level_tokens()) - 3)
    assert (vocabulary.scores, vocabulary.unknown_token_id, vocabulary.add_space_prefix) == ((), None, False)
    assert (spec.bos_token_id, spec.eos_token_ids, spec.add_bos, spec.add_eos) == (1, (2, 0), False, False)
    assert dict(spec.special_tokens) == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert spec.chat_templates == ()


def test_a_sentencepiece_vocabulary_has_scores_and_its_own_defaults(path):
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.scores": [0.0, -1.0, -2.0, -3.5],
        "tokenizer.ggml.unknown_token_id": 3,
    }
    spec = open_with(path, metadata=metadata).tokenizer
    assert spec.vocabulary is not None
    assert (spec.vocabulary.kind, spec.vocabulary.scores) == ("llama", (0.0, -1.0, -2.0, -3.5))
    assert (spec.vocabulary.add_space_prefix, spec.vocabulary.unknown_token_id) == (True, 3)
    assert (spec.add_bos, spec.add_eos) == (True, False)


@pytest.mark.parametrize(("pre", "expected"), [("llama-bpe", True), ("qwen2", False)])
def test_byte_level_files_that_do_not_say_add_a_first_token_by_their_kind(path, pre, expected):
    assert open_with(path, metadata={"tokenizer.ggml.pre": pre}).tokenizer.add_bos is expected
    stated = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": not expected}
    stated["tokenizer.ggml.add_eos_token"] = True
    spec = open_with(path, metadata=stated).tokenizer
    assert (spec.add_bos, spec.add_eos) == (not expected, True)


def test_all_tokens_that_end_a_turn_are_found(path):
    tokens = ("<|im_start|>", "<|im_end|>", "a", "b", "<|eot_id|>", "<|end|>", "<|eom_id|>", "</s>")
    metadata = {
        "tokenizer.ggml.eos_token_id": 7,
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.eom_token_id": 6,
        "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 3, 3, 3],  # <|eot_id|> is ordinary text here
    }
    write_tiny_gguf(path, shape=MINUTE_SHAPE, tokens=tokens, metadata=metadata)
    checkpoint = GgufCheckpoint(path)
    assert checkpoint.tokenizer.eos_token_ids == (7, 5, 6, 1)
    assert checkpoint.config.eos_token_ids == (7, 5, 6, 1)


@pytest.mark.parametrize("nothing", [-1, 2**32 - 1, None])
def test_a_special_token_may_be_stated_as_absent(path, nothing):
    checkpoint = open_with(path, metadata={"tokenizer.ggml.bos_token_id": nothing})
    assert (checkpoint.tokenizer.bos_token_id, checkpoint.config.bos_token_id) == (None, None)


def test_chat_templates_are_found_by_name(path):
    metadata = {"tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "B"}
    templates = open_with(path, metadata=metadata).tokenizer.chat_templates
    assert dict(templates) == {"default": "A", "tool_use": "B"}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model", None, "tokenizer.ggml.model is missing"),
        ("model", "bert", "the tokenizer 'bert' is not supported; supported are gpt2, llama"),
        ("model", "llama", "tokenizer.ggml.scores is missing"),
        ("tokens", None, "tokenizer.ggml.tokens is missing"),
        ("tokens", 5, "tokenizer.ggml.tokens must be an array of strings, found 5"),
        ("tokens", [1, 2, 3, 4], "tokenizer.ggml.tokens must be an array of strings"),
        ("merges", None, "tokenizer.ggml.merges is missing"),
        ("merges", [1.0], "tokenizer.ggml.merges must be an array of strings"),
        ("token_type", [3], "tokenizer.ggml.token_type must be an array of 4 numbers"),
        ("token_type", ["a", "b", "c", "d"], "tokenizer.ggml.token_type must be an array of 4 numbers"),
        ("token_type", [0.5, 1.0, 2.0, 3.0], "tokenizer.ggml.token_type must be an array of 4 numbers"),
        ("scores", [float("nan"), 1.0, 2.0, 3.0], "tokenizer.ggml.scores must be an array of finite numbers"),
        ("bos_token_id", 4, "tokenizer.ggml.bos_token_id must be one of the 4 tokens (0 to 3), found 4"),
        ("eos_token_id", "x", "tokenizer.ggml.eos_token_id must be a whole number"),
        ("eot_token_id", 9, "tokenizer.ggml.eot_token_id must be one of the 4 tokens"),
        ("add_bos_token", 1, "tokenizer.ggml.add_bos_token must be true or false, found 1"),
        ("pre", 3, "tokenizer.ggml.pre must be a string, found 3"),
    ],
)
def test_tokenizers_that_cannot_be_used_are_refused(path, key, value, words):
    assert words in refusal(path, metadata={f"tokenizer.ggml.{key}": value})
