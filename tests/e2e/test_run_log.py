"""What a real server took down decides the same again."""

from __future__ import annotations

import signal
from pathlib import Path

from noria.capacity.replay import replay
from noria.capacity.run_file import read_run
from support_processes import processes, until


def test_a_served_run_is_replayed_step_by_step(tiny_model: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    flags = ["--max-model-len", 512, "--num-gpu-blocks-override", 34, "--run-log", log]
    with processes(tmp_path / "server.log", "--model", tiny_model, *flags) as server:
        server.ready()
        streams = [
            server.stream("the fox " * (1 + 3 * (i % 5)), 60 + i, stop=["no such text"]) for i in range(20)
        ]
        leaving = server.stream("the fox", 400, stop=[" "]).end()  # a stop string: ended by the API process
        for stream in streams:
            assert stream.end().is_whole, stream.data[-2:]
        until(server.is_clean)
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code() == 0
    run = read_run(log)
    assert leaving.status == 200
    assert len(run.ended) == 21
    result = replay(run)
    assert result.difference is None, str(result.difference)
    assert result.num_steps == len(run.steps) > 60
