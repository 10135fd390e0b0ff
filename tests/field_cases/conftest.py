from __future__ import annotations

from collections.abc import Iterator

import pytest

from support_embedded import embedded_model
from support_http import Api
from support_models import cached_checkpoint
from support_serving import serving


@pytest.fixture(scope="session")
def smollm2() -> Iterator[Api]:
    """The embedded model behind a server."""
    with serving(model=embedded_model(), max_model_len=2048, num_gpu_blocks_override=512) as running:
        yield Api(running)


@pytest.fixture(scope="session")
def tiny() -> Iterator[Api]:
    """A small model with random weights, whose text is mostly broken characters, behind a server."""
    model = cached_checkpoint("llama", max_position_embeddings=8192)
    with serving(model=model, max_model_len=8192, num_gpu_blocks_override=1024) as running:
        yield Api(running)
