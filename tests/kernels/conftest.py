"""Tests of kernels hold for every backend unless they say otherwise."""

from __future__ import annotations

import pytest

from support_backends import BACKENDS


@pytest.fixture(scope="session", params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
