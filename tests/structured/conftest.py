from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noria import LLM
from support_gguf import TinyShape, write_tiny_gguf

SHAPE = TinyShape(
    hidden_size=64, intermediate_size=64, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=32
)
METADATA = {
    "llama.context_length": 4096,
    "tokenizer.ggml.merges": ["h e"],
    "tokenizer.chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}


@pytest.fixture(scope="session")
def letters_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, and a token a byte: whatever it writes, the grammar made it write."""
    path = tmp_path_factory.mktemp("letters") / "letters.gguf"
    write_tiny_gguf(path, shape=SHAPE, metadata=METADATA)
    return path


@pytest.fixture(scope="session")
def llm(letters_model: Path) -> Iterator[LLM]:
    with LLM(letters_model, show_progress=False, max_model_len=2048, num_gpu_blocks_override=1024) as made:
        yield made
