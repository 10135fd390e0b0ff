"""Instruction set levels for the tests of products."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noria.kernels.native import _native

LEVELS = _native.levels()


@pytest.fixture(scope="module", params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each that this machine runs, and those that are emulated, for a module at a time: products are the level's."""
    before = _native.isa()
    _native.use_isa(request.param)
    yield request.param
    _native.use_isa(before)
