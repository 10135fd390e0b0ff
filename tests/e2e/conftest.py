from __future__ import annotations

from pathlib import Path

import pytest

from support_embedded import embedded_model
from support_models import write_checkpoint


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights, on disk."""
    directory = tmp_path_factory.mktemp("tiny")
    write_checkpoint(directory, "llama", max_position_embeddings=2048)
    return directory


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return embedded_model()
