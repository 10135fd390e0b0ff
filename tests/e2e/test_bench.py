"""`noria bench` as a user runs it, on a small model."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noria.config.extras import plotly
from noria.config.operating_point import write_operating_point
from support_config import operating_point
from support_serving import Serving, serving

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
SMALL = ["--max-model-len", "256", "--num-gpu-blocks-override", "128"]
LOAD = ["--prompt-tokens", "8-24", "--output-tokens", "4-8", "--requests", "20", "--bench-seed", "5"]
# Other tests may load the machine meanwhile; how late a client is is no matter of right or wrong here.
PATIENT = ["--slo", "ttft:600000", "tpot:600000"]


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "noria", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[Serving]:
    with serving(model=str(tiny_model), max_model_len=256, num_gpu_blocks_override=128) as running:
        yield running


@pytest.fixture(scope="module")
def over_http(server: Serving, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run against a server."""
    out = tmp_path_factory.mktemp("http")
    run = bench("bench", "serve", "--base-url", server.url, "--rate", 20, *LOAD, *PATIENT, "--out", out)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "TTFT" in run.stdout and "from the send" in run.stdout
    assert "May these figures be believed?" in run.stdout
    return out


@pytest.fixture(scope="module")
def in_process(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("process")
    run = bench("bench", "serve", tiny_model, *SMALL, "--rate", 20, *LOAD, *PATIENT, "--out", out)
    assert run.returncode == 0, run.stdout + run.stderr
    return out


def result_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "result.json").read_text())


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]


def test_prompts_and_answers_have_the_planned_lengths_over_http(over_http: Path) -> None:
    rows = rows_of(over_http)
    assert len(rows) == 20
    assert all(row["status"] == "ok" for row in rows)
    assert all(row["num_prompt"] == row["num_planned"] for row in rows)
    assert all(row["num_output"] == row["num_asked"] for row in rows)


def test_the_result_has_vllms_fields_and_our_own(over_http: Path) -> None:
    result = result_of(over_http)
    assert result["completed"] == 20
    assert len(result["ttfts"]) == len(result["itls"]) == len(result["input_lens"]) == 20
    assert {
        "mean_ttft_ms",
        "p99_itl_ms",
        "median_tpot_ms",
        "request_goodput",
        "output_throughput",
    } <= result.keys()
    own = result["noria"]
    assert own["certificate"]["num_requests"] == 20
    figure = own["summary"]["figures_ms"]["ttft_slo"]
    assert figure["p50_ci"][0] <= figure["p50"] <= figure["p50_ci"][1]
    assert {check["name"] for check in own["validity"]} >= {
        "load_generator",
        "little",
        "stationary",
        "prompt_tokens",
    }
    assert own["samples"]


def test_both_ways_plan_the_same_load(over_http: Path, in_process: Path) -> None:
    planned = [
        [
            (row["index"], round(row["arrival_s"], 9), row["num_prompt"], row["num_asked"])
            for row in rows_of(out)
        ]
        for out in (over_http, in_process)
    ]
    assert planned[0] == planned[1]


def test_a_run_in_process_has_its_steps_and_queue_waits(in_process: Path) -> None:
    steps = [json.loads(line) for line in (in_process / "steps.jsonl").read_text().splitlines()]
    rows = rows_of(in_process)
    assert sum(step["prefill_tokens"] for step in steps) >= sum(row["num_prompt"] for row in rows) * 0.5
    assert all(row["queue_wait_s"] >= 0 for row in rows)
    assert all(row["num_cached"] is not None for row in rows)


def test_the_table_of_requests_is_there_as_csv_too(over_http: Path) -> None:
    with (over_http / "requests.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(row["index"]) for row in table] == [row["index"] for row in rows_of(over_http)]
    assert all(float(row["arrival_s"]) <= float(row["first_s"]) <= float(row["end_s"]) for row in table)


def test_the_report_is_one_file_that_needs_no_other(over_http: Path) -> None:
    assert plotly() is not None
    page = (over_http / "report.html").read_text()
    assert page.count("Plotly.newPlot(") >= 4
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(src|href)=['\"]?http", own)
    assert "Fingerprint" in own


def test_a_fingerprint_tells_engine_model_settings_workload_and_machine(in_process: Path) -> None:
    fingerprint = result_of(in_process)["noria"]["fingerprint"]
    assert fingerprint["engine"]["name"] == "noria"
    assert len(fingerprint["model"]["hash"]) == 32
    assert fingerprint["settings"]["cache"]["num_blocks"] == 128
    assert fingerprint["settings"]["scheduler"]["max_num_batched_tokens"] > 0
    assert fingerprint["workload"]["prompt_tokens"]["p100"] <= 24
    assert fingerprint["machine"]["cpus"] > 0


def test_a_diff_shows_what_changed_and_only_that(in_process: Path, tmp_path: Path) -> None:
    same = bench("config", "diff", in_process, in_process)
    assert same.returncode == 0
    assert "nothing changed" in same.stdout
    other = tmp_path / "other.json"
    result = result_of(in_process)
    result["noria"]["fingerprint"]["settings"]["cache"]["block_size"] = 64
    other.write_text(json.dumps(result))
    changed = bench("config", "diff", in_process, other)
    assert changed.returncode == 1
    assert "settings.cache.block_size" in changed.stdout
    assert "num_blocks" not in changed.stdout
    wrong = bench("config", "diff", in_process)
    assert wrong.returncode == 2
    assert "two directories" in wrong.stderr


def test_a_diff_of_operating_points_shows_what_changed_and_only_that(tmp_path: Path) -> None:
    before, after = str(tmp_path / "before.json"), str(tmp_path / "after.json")
    write_operating_point(operating_point(max_num_seqs=32), before)
    write_operating_point(operating_point(max_num_seqs=64), after)
    assert bench("config", "diff", before, before).returncode == 0
    changed = bench("config", "diff", before, after)
    assert changed.returncode == 1
    rows = [line for line in changed.stdout.splitlines() if "│" in line]
    assert len(rows) == 1
    assert [cell.strip() for cell in rows[0].strip("│").split("│")] == ["stated.max_num_seqs", "32", "64"]
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"format": 1, "settings": {}}))
    assert "broken.json lacks 'model'" in bench("config", "diff", before, broken).stderr


def test_a_runs_own_log_is_a_trace_that_gives_the_same_load_again(
    in_process: Path, tiny_model: Path, tmp_path: Path
) -> None:
    log = in_process / "requests.jsonl"
    shown = bench("bench", "trace", log)
    assert shown.returncode == 0, shown.stderr
    assert "20, 0 rows left out" in shown.stdout
    arguments = ["--trace", log, "--bench-seed", 5, *PATIENT, "--out", tmp_path]
    again = bench("bench", "serve", tiny_model, *SMALL, *arguments)
    assert again.returncode == 0, again.stdout + again.stderr
    before, after = rows_of(in_process), rows_of(tmp_path)
    assert [row["pieces"] for row in after] == [row["pieces"] for row in before]
    first_s = before[0]["arrival_s"]
    assert [row["arrival_s"] for row in after] == pytest.approx(
        [row["arrival_s"] - first_s for row in before]
    )


def test_ctrl_c_reports_on_what_there_is(tiny_model: Path, tmp_path: Path) -> None:
    arguments = ["bench", "serve", tiny_model, *SMALL, "--max-concurrency", "2", "--duration", "100"]
    command = [sys.executable, "-m", "noria", *map(str, arguments), "--out", str(tmp_path)]
    # A group of its own, as a terminal's: the signal reaches both processes, and not the tests.
    code = (
        "import os, sys, threading, signal, time\n"
        "import noria.bench.live as live\n"
        "def show(self, news):\n"
        "    if news.num_ok >= 3 and not hasattr(live, 'sent'):\n"
        "        live.sent = True\n"
        "        os.killpg(os.getpgrp(), signal.SIGINT)\n"
        "live.Progress.show = show\n"
        f"if __name__ == '__main__':\n    from noria.cli.main import main\n    sys.exit(main({command[3:]!r}))\n"
    )
    script = tmp_path / "interrupted.py"
    script.write_text(code)
    run = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    assert "interrupted: figures are of what had come until then" in run.stdout, run.stdout + run.stderr
    assert result_of(tmp_path)["completed"] >= 3
    assert run.returncode != -signal.SIGINT


def test_batching_draws_both_policies_and_their_answers_are_the_same(
    tiny_model: Path, tmp_path: Path
) -> None:
    # So many that static batches cannot all happen to hold answers of one length.
    asked = ["--requests", 24, "--batch", 4, "--output-tokens", "2*0.5+24*0.5", "--prompt-tokens", "8"]
    run = bench("bench", "batching", tiny_model, *SMALL, *asked, "--out", tmp_path)
    assert run.returncode == 0, run.stderr
    assert "identical answers" in run.stdout
    assert "24 of 24" in run.stdout
    steps = re.search(r"steps\D+(\d+)\D+(\d+)", run.stdout)
    assert steps is not None
    assert int(steps[2]) < int(steps[1])
    picture = (tmp_path / "batching.svg").read_text()
    assert picture.count("<title>") == 48


def test_block_sizes_and_prefixes_are_compared(tiny_model: Path, tmp_path: Path) -> None:
    small = [
        "--requests",
        4,
        "--rounds",
        1,
        "--output-tokens",
        "4",
        "--prompt-tokens",
        "20",
        "--out",
        tmp_path,
    ]
    sizes = bench("bench", "block-size", tiny_model, "--max-model-len", 256, "--sizes", 8, 32, *small)
    assert sizes.returncode == 0, sizes.stderr
    rows = [json.loads(line) for line in (tmp_path / "block_size.jsonl").read_text().splitlines()]
    assert [row["block_size"] for row in rows] == [8, 32]
    assert rows[0]["waste"] < rows[1]["waste"]
    assert rows[0]["entries"] > rows[1]["entries"]
    prefix = bench("bench", "prefix", tiny_model, *SMALL, "--ratios", 0, 1, "--prefix-tokens", 64, *small)
    assert prefix.returncode == 0, prefix.stderr
    none, full = [json.loads(line) for line in (tmp_path / "prefix.jsonl").read_text().splitlines()]
    assert none["cached"] == 0
    assert full["cached"] == pytest.approx(3 * 64 / (4 * 84), abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--until", "certain"], "give --slo"),
        (["--endpoint", "chat"], "give --base-url"),
        (["some-model", "--base-url", "http://127.0.0.1:1"], "exclude each other"),
        (["--extra-body", "{}"], "--extra-body is about requests to a server: give --base-url"),
        (["--max-num-seqs", "4", "--base-url", "http://127.0.0.1:1"], "without effect: --max-num-seqs;"),
        (["--slo", "ttft"], "must be one of chat, rag, code"),
        (["--prompt-tokens", "many", "--base-url", "http://127.0.0.1:1"], "does not list its models"),
        (["--trace", "/nowhere", "--base-url", "http://127.0.0.1:1"], "does not list its models"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    run = bench("bench", "serve", *arguments, "--out", tmp_path)
    assert run.returncode in (1, 2)
    assert message in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    "command",
    [
        "bench",
        "bench serve",
        "bench trace",
        "bench batching",
        "bench block-size",
        "bench prefix",
        "config",
        "config diff",
    ],
)
def test_help_teaches(command: str) -> None:
    run = bench(*command.split(), "--help")
    assert run.returncode == 0
    assert f"noria {command}" in run.stdout
    assert re.search("examples:", run.stdout)
