"""What makes a start quick, and what it must leave behind."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from noria.cli.starting import no_collections


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()


def test_nothing_is_collected_inside_and_what_was_made_is_not_looked_at_again() -> None:
    with no_collections():
        assert not gc.isenabled()
        kept = [[index] for index in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(kept)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with no_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_collection_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), no_collections():
        raise ValueError("inside")
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("noria", ("numpy", "rich", "starlette")),
        ("noria.cli.main", ("numpy", "rich", "starlette")),
        ("noria.cli.serve", ("torch", "rich", "starlette", "uvicorn")),
        ("noria.offline.llm", ("torch", "rich", "starlette", "uvicorn")),
    ],
)
def test_what_is_slow_to_import_is_not_imported_before_it_is_used(
    module: str, absent: tuple[str, ...]
) -> None:
    program = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(absent) & set(done.stdout.split())
