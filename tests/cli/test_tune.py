"""`noria tune` from a step model to an operating point, simulated alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from noria.cli.main import main
from noria.config.operating_point import read_operating_point, write_operating_point
from support_tuning import saved_calibration

LOAD = ["--prompt-tokens", "200-400", "--output-tokens", "5-10", "--sim-requests", "60", "--requests", "60"]
GRID = [
    "--try",
    "max_num_seqs=2,16",
    "--try",
    "max_num_batched_tokens=128,512",
    "--try",
    "block_size=16",
    "--try",
    "enable_prefix_caching=on",
]
LIMITS = ["--ttft-ms", "500", "--itl-ms", "60"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tune")
    model = saved_calibration(directory / "model.json")
    asked = ["tune", str(model), "--simulate-only", "--out", str(directory / "out"), *LIMITS, *LOAD, *GRID]
    assert main(asked) == 0
    return directory / "out"


def test_the_operating_point_holds_the_settings_the_limits_and_the_rate(out: Path) -> None:
    point = read_operating_point(str(out / "operating_point.json"))
    assert point.settings["max_num_seqs"] in (2, 16)
    assert point.settings["max_num_batched_tokens"] == 128
    assert point.settings["max_model_len"] % 16 == 0
    assert point.settings["max_model_len"] <= 416
    assert (point.slo.percentile, point.slo.ttft_ms, point.slo.itl_ms) == (95, 500, 60)
    assert point.source == "simulated"
    assert point.certificate is None
    assert point.rate.failed is not None
    assert 0 < point.rate.passed < point.rate.failed
    assert point.measured["ttft_ms_p95"].value <= 500
    assert point.measured["itl_ms_p95"].value <= 60
    assert point.workload.options["prompt_tokens"] == "200-400"


def test_a_point_that_was_tuned_from_another_holds_its_settings_one_by_one(out: Path, tmp_path: Path) -> None:
    before = read_operating_point(str(out / "operating_point.json"))
    path = str(tmp_path / "before.json")
    write_operating_point(
        replace(before, settings={"rule_time_limit_s": 2.5, "max_num_queued_reqs": 7}), path
    )
    asked = ["tune", str(out.parent / "model.json"), "--simulate-only", "--operating-point", path]
    assert main([*asked, "--out", str(tmp_path / "out"), *LIMITS, *LOAD, *GRID, "--max-num-seqs", "4"]) == 0
    settings = read_operating_point(str(tmp_path / "out" / "operating_point.json")).settings
    assert settings["rule_time_limit_s"] == 2.5
    assert "operating_point" not in settings


def test_another_number_format_than_steps_were_measured_with_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved_calibration(tmp_path / "model.json")
    out = str(tmp_path / "out")
    asked = ["tune", str(model), "--simulate-only", "--quantization", "w8", "--out", out]
    assert main([*asked, *LIMITS, *LOAD]) == 2
    assert "--quantization w8 (it has none)" in capsys.readouterr().err


def test_every_setting_that_was_tried_is_in_the_json_with_its_probes(out: Path) -> None:
    told = json.loads((out / "tune.json").read_text())
    assert told["explored"][0]["setting"]["max_num_seqs"] is None
    assert len(told["explored"]) >= 5
    assert told["sensitivities"]
    assert told["workload"]["hash"]
    assert all(one["rate"]["probes"] for one in told["explored"] if one["rate"] is not None)


def test_the_page_is_one_file_with_both_plots_and_the_command(out: Path) -> None:
    page = (out / "tune.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot('p") == 2
    assert "--max-num-batched-tokens 128" in page
    assert "src=" not in page.split("<body>")[1]


def test_without_a_limit_there_is_nothing_to_tune_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune"]) == 2
    assert "--ttft-ms" in capsys.readouterr().err


def test_an_interrupted_search_reports_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from noria.tuning.tuner import Tuner

    def interrupted(tuner: Tuner) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tuner, "explain", interrupted)
    model = saved_calibration(tmp_path / "model.json")
    status = main(
        ["tune", str(model), "--simulate-only", "--out", str(tmp_path / "out"), *LIMITS, *LOAD, *GRID]
    )
    assert status == 130
    assert "interrupted" in capsys.readouterr().out
    assert (tmp_path / "out" / "operating_point.json").exists()
