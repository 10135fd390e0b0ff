"""What holds for every scenario: one server for most of them, and a table of what was measured at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support_chaos import FLAGS, NUM_TOKENS, PROMPT, Measured, check_clean, median_descriptors
from support_embedded import embedded_model
from support_processes import Processes, processes, until

_ROWS: list[Measured] = []


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    row = Measured(request.node.name.removeprefix("test_"))
    _ROWS.append(row)
    return row


@pytest.fixture(scope="session")
def _session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    flags = ("--model", embedded_model(), "--api-server-count", 2, *FLAGS)
    with processes(tmp_path_factory.mktemp("server") / "log", *flags) as running:
        yield running.ready()


@pytest.fixture(scope="session")
def undisturbed(_session_server: Processes) -> list[int]:
    """The tokens that follow PROMPT when nothing happens."""
    return _session_server.tokens(PROMPT, NUM_TOKENS)


@pytest.fixture(scope="session")
def descriptors(_session_server: Processes, undisturbed: list[int]) -> dict[str, int]:
    """How many each process has open once all are up."""
    until(lambda: len(re.findall(r"the api-\d process .* is up", _session_server.text())) == 2)
    return median_descriptors(_session_server)


@pytest.fixture
def server(
    _session_server: Processes, undisturbed: list[int], descriptors: dict[str, int]
) -> Iterator[Processes]:
    """The embedded model behind two API processes, with few KV blocks.

    After every scenario it is whole and idle, holds no more descriptors than at first, and answers as then.
    """
    running = _session_server
    yield running
    check_clean(running, descriptors)
    assert running.tokens(PROMPT, NUM_TOKENS) == undisturbed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    bad = {
        report.nodeid.rpartition("::test_")[2]
        for word in ("failed", "error")
        for report in terminalreporter.stats.get(word, ())
    }
    terminalreporter.section("what happened")
    for row in _ROWS:
        verdict = "FAILS" if row.name in bad else "holds"
        terminalreporter.write_line(f"{verdict} | {row.name.replace('_', ' ')} | {'; '.join(row.figures)}")
