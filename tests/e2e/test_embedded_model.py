"""The embedded default model against transformers, on the same dequantised weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from noria import LLM, SamplingParams

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):",
    "Água mole em pedra dura, 水滴石穿 🙂\n\n1. ",
]
NUM_TOKENS = 24


SMALL = {"max_model_len": 1024, "kv_cache_memory": "256MiB", "show_progress": False}


@pytest.fixture(scope="module")
def llm(smollm2: Path):
    """On the reference backend, which computes with the dequantised weights."""
    with LLM(smollm2, backend="torch", **SMALL) as llm:
        yield llm


@pytest.fixture(scope="module")
def reference(smollm2: Path) -> torch.nn.Module:
    """transformers' Llama with the file's weights as the `gguf` package dequantises them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(dict(read_weights(smollm2)), strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    return model.eval()


def read_weights(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    import gguf

    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
        **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
        **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
    }
    num_heads = {"attn_q": 9, "attn_k": 3}
    for tensor in gguf.GGUFReader(path).tensors:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        *prefix, part, _ = tensor.name.split(".")
        if part in num_heads:  # stored for pairs (2 i, 2 i + 1), wanted for pairs (i, i + dim / 2)
            shape = (num_heads[part], array.shape[0] // num_heads[part] // 2, 2, array.shape[1])
            array = array.reshape(shape).swapaxes(1, 2).reshape(array.shape)
        layer = f"model.layers.{prefix[1]}." if prefix else ""
        yield f"{layer}{names[part]}.weight", torch.from_numpy(array.copy())


def test_greedy_tokens_are_those_of_transformers_on_the_same_weights(llm: LLM, reference) -> None:
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    results = llm.generate(PROMPTS, params, show_progress=False)
    for result in results:
        ids = torch.tensor([result.prompt_token_ids + result.outputs[0].token_ids])
        with torch.inference_mode():
            logits = reference(ids).logits[0, len(result.prompt_token_ids) - 1 : -1]
        assert logits.argmax(-1).tolist() == result.outputs[0].token_ids


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_the_model_knows_the_capital_of_japan(smollm2: Path, backend: str) -> None:
    question = [{"role": "user", "content": "What is the capital of Japan?"}]
    with LLM(smollm2, backend=backend, **SMALL) as llm:
        [result] = llm.chat(question, SamplingParams(temperature=0, max_tokens=32), show_progress=False)
    assert "Tokyo" in result.outputs[0].text
    assert result.outputs[0].finish_reason == "stop"


def test_answers_are_the_same_alone_together_chunked_and_cached(smollm2: Path) -> None:
    prompts = [
        f"{i} rivers of Europe, listed by length and with their sources: " * (1 + i % 3) for i in range(8)
    ]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
    outputs = []
    for settings in (
        {"max_num_seqs": 1, "enable_prefix_caching": False},
        {},
        {"max_num_batched_tokens": 24},
        {"num_threads": 1, "num_gpu_blocks_override": 12, "max_model_len": 96},
    ):
        base = {"max_model_len": 256, "num_gpu_blocks_override": 256, "show_progress": False}
        with LLM(smollm2, **{**base, **settings}) as llm:
            for _ in range(2):  # the second time, prefixes are cached
                results = llm.generate(prompts, params, show_progress=False)
                outputs.append([(r.outputs[0].token_ids, r.outputs[0].logprobs) for r in results])
    assert all(output == outputs[0] for output in outputs)
