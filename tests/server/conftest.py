from __future__ import annotations

from collections.abc import Iterator

import pytest

from support_server import FakeEngine, Server, says, serving


@pytest.fixture(scope="module")
def _module_server() -> Iterator[Server]:
    with serving(FakeEngine()) as server:
        yield server


@pytest.fixture
def server(_module_server: Server) -> Server:
    """A server shared by the module's tests; its engine starts each with the script says("the wheel turns")."""
    engine = _module_server.engine
    engine.wait_for(lambda: not engine.is_busy)
    engine.script = says("the wheel turns")
    engine.submitted.clear()
    engine.cancelled.clear()
    engine.cancel_reasons.clear()
    return _module_server
