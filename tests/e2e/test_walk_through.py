"""The README's way from nothing to an operating point, as it is written there."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from pathlib import Path

import pytest

from noria.config.operating_point import read_operating_point
from support_readme import ROOT, commands_of, run_script

_LIMIT_S = 600.0  # what the README promises at most


def free_port() -> int:
    """One that the system gives to nobody by itself until it is used."""
    draw = random.Random()
    while True:
        port = draw.randrange(20_000, 30_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def assert_no_rate_was_kept(told: str, tuned: Path) -> None:
    """On a machine whose speed swings every rate may have failed: then no point may be written, and the last command
    that ran has said so."""
    assert "No operating point is written" in told, told
    assert not (tuned / "operating_point.json").exists()
    real = [
        probe
        for one in json.loads((tuned / "tune.json").read_text())["confirmed"]
        for probe in one["rate"]["probes"]
    ]
    assert any(probe["verdict"] == "fail" for probe in real)


@pytest.mark.timeout(_LIMIT_S + 60)
def test_the_readme_leads_from_nothing_to_an_operating_point(tmp_path: Path) -> None:
    port = free_port()
    script = "\n".join(commands_of(ROOT / "README.md")).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    # Other tests may load the machine meanwhile; how late a client is is no matter of right or wrong here.
    settings = f"export NORIA_PORT={port} NORIA_SLO=ttft:600000,tpot:600000\n"
    try:
        told = run_script(settings + script, tmp_path, _LIMIT_S)
    except AssertionError as ended:
        assert_no_rate_was_kept(str(ended), tmp_path / "runs/tuned")
        return
    first = json.loads((tmp_path / "runs/first/result.json").read_text())
    assert first["completed"] == 60
    what_if = json.loads((tmp_path / "runs/what-if/what-if/result.json").read_text())
    assert what_if["noria"]["source"] == "simulated"
    point = read_operating_point(str(tmp_path / "runs/tuned/operating_point.json"))
    assert point.rate.passed > 0
    assert (point.slo.ttft_ms, point.slo.itl_ms) == (2000.0, 200.0)
    info, _ = json.JSONDecoder().raw_decode(told, told.index('{"version"'))
    assert info["operating_point"]["hash"] == point.hash
    assert info["operating_point"]["departures"] == {}
    for name in point.settings.keys() & info["settings"]["scheduler"].keys():
        assert info["settings"]["scheduler"][name] == point.settings[name]
    assert "was found elsewhere" not in told
