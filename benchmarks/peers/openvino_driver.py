"""A script for OpenVINO's environment: the closed loop of `client.py` around ContinuousBatchingPipeline.

    python openvino_driver.py MODEL.gguf NUM_THREADS (--cache-gb N | --kv-tokens N)

No HTTP and no client beside it: each step's tokens are timed when the step returns. It says one JSON object a line:
first {"load_s", "version"}; then for each line of standard input (groups as in `traffic.py`, as JSON) one
{"done": 1} a finished request and at the end {"replies": [...]}, or {"error": text}. It ends with its input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any, TextIO

import openvino_genai as genai

MAX_NUM_SEQS = 64
MAX_NUM_BATCHED_TOKENS = 512
CPU_BLOCK_TOKENS = 32


@dataclass
class Running:
    """A request that was given to the pipeline. Times: seconds since the play began."""

    group: int
    index: int
    handle: Any
    num_prompt: int
    sent_s: float
    token_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    is_over: bool = False


def main() -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the library prints is no message
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("num_threads", type=int)
    parser.add_argument("--cache-gb", type=int, default=0)
    parser.add_argument("--kv-tokens", type=int, default=0)
    arguments = parser.parse_args()
    begin_s = time.perf_counter()
    pipeline = load(arguments)
    say(out, load_s=time.perf_counter() - begin_s, version=genai.__version__)
    for line in sys.stdin:
        try:
            say(out, replies=play(pipeline, json.loads(line), out))
        except RuntimeError as error:
            say(out, error=str(error))


def say(out: TextIO, **message: object) -> None:
    out.write(json.dumps(message) + "\n")


def load(arguments: argparse.Namespace) -> Any:
    scheduler = genai.SchedulerConfig()
    if arguments.kv_tokens:
        scheduler.num_kv_blocks = arguments.kv_tokens // CPU_BLOCK_TOKENS
    else:
        scheduler.cache_size = arguments.cache_gb
    scheduler.max_num_seqs = MAX_NUM_SEQS
    scheduler.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS
    scheduler.dynamic_split_fuse = True
    properties = {"INFERENCE_NUM_THREADS": arguments.num_threads}
    return genai.ContinuousBatchingPipeline(arguments.model, scheduler, "CPU", properties)


def play(pipeline: Any, groups: list[dict[str, Any]], out: TextIO) -> list[dict[str, Any]]:
    """Replies by group and index. Prompts are tokenised before the clock runs, to count them."""
    tokenizer = pipeline.get_tokenizer()
    prompts = [
        [tokenizer.encode(request["prompt"]).input_ids for request in group["requests"]] for group in groups
    ]
    runs: list[Running] = []
    origin_s = time.perf_counter()
    while sum(run.is_over for run in runs) < sum(map(len, prompts)):
        now_s = time.perf_counter() - origin_s
        for number, group in enumerate(groups):
            if now_s >= group["start_after_s"]:
                admit(pipeline, number, group, prompts[number], runs, origin_s)
        if pipeline.has_non_finished_requests():
            pipeline.step()
            collect(runs, origin_s, out)
        else:
            time.sleep(0.001)
    return [as_reply(run, tokenizer) for run in sorted(runs, key=lambda run: (run.group, run.index))]


def admit(
    pipeline: Any,
    number: int,
    group: dict[str, Any],
    prompts: list[Any],
    runs: list[Running],
    origin_s: float,
) -> None:
    """Give the pipeline the group's next requests, up to its concurrency."""
    mine = [run for run in runs if run.group == number]
    num_running = sum(not run.is_over for run in mine)
    for index in range(len(mine), min(len(prompts), len(mine) + group["concurrency"] - num_running)):
        wanted = genai.GenerationConfig()
        wanted.max_new_tokens = group["requests"][index]["max_tokens"]
        wanted.ignore_eos = True
        wanted.do_sample = False
        wanted.apply_chat_template = False
        sent_s = time.perf_counter() - origin_s
        handle = pipeline.add_request(len(runs), prompts[index], wanted)
        runs.append(Running(number, index, handle, prompts[index].shape[1], sent_s))


def collect(runs: list[Running], origin_s: float, out: TextIO) -> None:
    """Take what the last step brought."""
    now_s = time.perf_counter() - origin_s
    for run in runs:
        while not run.is_over and run.handle.can_read():
            [output] = run.handle.read().values()
            run.token_ids += output.generated_ids
            run.token_s.append(now_s)
        if not run.is_over and run.handle.get_status() != genai.GenerationStatus.RUNNING:
            if not run.token_s:
                raise RuntimeError(f"request {run.index} was given up: {run.handle.get_status()}")
            run.is_over = True
            say(out, done=1)


def as_reply(run: Running, tokenizer: Any) -> dict[str, Any]:
    return {
        "group": run.group,
        "index": run.index,
        "sent_s": run.sent_s,
        "token_s": run.token_s,
        "num_prompt": run.num_prompt,
        "num_output": len(run.token_ids),
        "text": tokenizer.decode(run.token_ids),
    }


if __name__ == "__main__":
    main()
