"""`noria calibrate` and `noria simulate`, from a server's log to foretold figures."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from noria.capacity.model_file import load
from noria.capacity.run_file import read_run
from noria.cli.main import main
from noria.engine.messages import RequestRecord
from support_capacity import logged_client, run_random_load
from support_engine import engine_config


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    config = engine_config(num_blocks=60, max_num_seqs=8, max_num_batched_tokens=32)
    client = logged_client(config, path)
    run_random_load(client, random.Random(1), 200)
    client.shutdown()
    return path


@pytest.fixture(scope="module")
def model(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.json"
    assert main(["calibrate", "--from-log", str(log), "-o", str(path)]) == 0
    return path


def test_a_log_makes_a_model_and_the_model_foretells_a_load(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    load = ["--rate", "50", "--requests", "80", "--prompt-tokens", "10-40", "--output-tokens", "5-20"]
    status = main(
        ["simulate", str(model), *load, "--runs", "2", "--what-if", "max_num_seqs=2", "--out", str(out)]
    )
    assert status == 0
    told = capsys.readouterr().out
    assert (
        "as calibrated" in told
        and "max_num_seqs=2" in told
        and "times real time" in told
        and "90% interval" in told
    )
    result = json.loads((out / "result.json").read_text())
    assert result["noria"]["source"] == "simulated"
    assert result["completed"] == 80
    assert (out / "what-if" / "result.json").exists()


def test_a_bench_run_beside_its_log_tells_what_http_takes(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = sorted((one.record for one in read_run(log).ended.values()), key=lambda one: one.accepted_s)
    rows = [seen_over_http(one, 0.025) for one in ended if one.first_token_s is not None]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    path = tmp_path / "model.json"
    arguments = ["--from-log", str(log), "--from-bench", str(tmp_path), "-o", str(path)]
    assert main(["calibrate", *arguments]) == 0
    assert "HTTP takes 2" in capsys.readouterr().out
    assert load(path).front.request_s == pytest.approx(0.025, abs=0.005)


def seen_over_http(record: RequestRecord, beside_s: float) -> dict[str, object]:
    assert record.first_token_s is not None
    sent_s = record.accepted_s - 7000
    first_s = sent_s + record.first_token_s - record.accepted_s + beside_s
    return {
        "index": 0,
        "arrival_s": sent_s,
        "sent_s": sent_s,
        "chunk_s": [first_s],
        "chunk_tokens": [record.num_output_tokens],
        "end_s": first_s,
        "status": "ok",
        "num_prompt": record.num_prompt_tokens,
        "num_output": record.num_output_tokens,
        "num_planned": record.num_prompt_tokens,
        "num_asked": record.num_output_tokens,
        "pieces": [],
    }


def test_what_a_log_leaves_no_use_for_is_told(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--from-log", str(log), "-o", str(tmp_path / "m.json"), "--max-num-seqs", "4", "--minutes", "1"]
    assert main(["calibrate", *asked]) == 0
    told = capsys.readouterr().err
    assert "without effect: --max-num-seqs; logs tell" in told
    assert "without effect: --minutes; nothing is measured" in told


def test_a_bench_run_without_a_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--from-bench", str(tmp_path), "-o", str(tmp_path / "m.json")]) == 2
    assert "give its log with --from-log" in capsys.readouterr().err


def test_a_log_is_put_beside_its_simulation(
    model: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(model), "--validate", str(log), "--runs", "1"]) == 0
    told = capsys.readouterr().out
    assert "steps hold the same work" in told and "TTFT P95" in told


@pytest.mark.parametrize("kind", ["load", "validation"])
@pytest.mark.parametrize("num_runs", [1, 2])
def test_an_interval_is_told_where_several_runs_tell_it(
    model: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, num_runs: int
) -> None:
    asked = ["--rate", "20", "--requests", "40", "--prompt-tokens", "10", "--output-tokens", "5"]
    if kind == "validation":
        asked = ["--validate", str(log)]
    assert main(["simulate", str(model), *asked, "--runs", str(num_runs), "--out", str(tmp_path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    title = "a real run and" if kind == "validation" else "what this load is"
    table = told[told.index(title) :]
    assert "nan" not in table
    assert ("90% interval" in table) == (num_runs > 1)
    assert bool(re.search(r"\d \[\S+, \S+\]", table)) == (num_runs > 1)


def test_a_log_that_was_decided_otherwise_is_told_and_is_a_failure(
    model: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(
        log.read_bytes().replace(b'"max_num_batched_tokens":32', b'"max_num_batched_tokens":16')
    )
    assert main(["simulate", str(model), "--validate", str(changed), "--runs", "1"]) == 1
    assert "the first that differs is step" in capsys.readouterr().out


def test_a_missing_model_is_named_with_what_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(tmp_path / "no.json"), "--rate", "1"]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["--until", "certain", "--slo", "chat"], ["--slo-target", "0.9"]])
def test_what_a_measured_run_alone_is_judged_by_is_refused(
    asked: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(model), "--rate", "1", *asked]) == 2
    assert f"{asked[0]} is about the verdict of a measured run" in capsys.readouterr().err


def test_logs_of_different_settings_are_not_learnt_as_one(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(log.read_bytes().replace(b'"max_num_seqs":8', b'"max_num_seqs":9', 1))
    arguments = [
        "calibrate",
        "--from-log",
        str(log),
        "--from-log",
        str(other),
        "-o",
        str(tmp_path / "m.json"),
    ]
    assert main(arguments) == 2
    assert "of other settings" in capsys.readouterr().err
    assert not (tmp_path / "m.json").exists()


def test_a_log_is_a_load_to_simulate_at_its_own_instants(
    model: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["simulate", str(model), "--trace", str(log), "--runs", "1", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["bench", "trace", str(log)]) == 0
    assert "run-log" in capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    workload = result["noria"]["fingerprint"]["workload"]
    ended = [one.record for one in read_run(log).ended.values() if one.record.num_output_tokens]
    assert (workload["kind"], workload["num_requests"]) == ("run-log", len(ended))
    assert sorted(result["input_lens"]) == sorted(one.num_prompt_tokens for one in ended)
    assert sum(result["output_lens"]) == sum(one.num_output_tokens for one in ended)
