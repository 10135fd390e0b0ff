"""`noria bench` and `noria config`: what each of their subcommands is for and what it takes."""

from __future__ import annotations

from noria.cli.command import Command, Group
from noria.config.bench_others import (
    BatchingCommandOptions,
    BlockSizeCommandOptions,
    DiffCommandOptions,
    PrefixCommandOptions,
    TraceCommandOptions,
)
from noria.config.benching import BenchOptions

_SERVE_EXAMPLES = """\
three questions, and how to ask them:
  how fast is it under my load?
      noria bench serve --base-url http://127.0.0.1:8000 --rate 4 --prompt-tokens lognormal:300,0.8 \\
        --output-tokens 64-256 --requests 1000
  does it keep my limits at this rate? (ends as soon as that is certain)
      noria bench serve --base-url http://127.0.0.1:8000 --rate 4 --slo ttft:500 tpot:50 --until certain
  what does it do at most?
      noria bench serve --base-url http://127.0.0.1:8000 --max-concurrency 32 --duration 60

more examples:
  noria bench serve --rate 2 --requests 200                 the default model in this process, without HTTP
  noria bench serve --base-url URL --trace conv.csv --duration 600
  noria bench serve --base-url URL --trace conv.csv --rate 3 --rate-scaling thin
  noria bench serve --base-url URL --rate 5 --burstiness 0.25 --prefix-tokens 512 --prefix-groups 4
  noria bench serve --base-url URL --endpoint chat --turns 1-6 --rate 1
  noria bench serve --base-url URL --rate 1 --ramp-to 20 --ramp-seconds 120 --duration 120

reading the result: open loop (--rate) shows what users feel, since they do not wait for each other; a closed loop
(--max-concurrency alone) shows capacity, and hides queues. docs/bench.md defines every figure.
"""

_TRACE_EXAMPLES = """\
examples:
  noria bench trace AzureLLMInferenceTrace_conv.csv
  noria bench trace mooncake.jsonl --write-trace requests.csv --write-format azure
"""

_BATCHING_EXAMPLES = """\
examples:
  noria bench batching                                      uneven answers on the default model
  noria bench batching --output-tokens 8*0.8+128*0.2 --requests 48 --batch 8
  noria bench batching --trace requests.jsonl --requests 64 --out picture
"""

_BLOCK_SIZE_EXAMPLES = """\
examples:
  noria bench block-size
  noria bench block-size --sizes 8 16 32 64 --prompt-tokens lognormal:300,0.8
"""

_PREFIX_EXAMPLES = """\
examples:
  noria bench prefix
  noria bench prefix --ratios 0 0.5 1 --prefix-tokens 1024 --prompt-tokens 64
"""

BENCH = Group(
    name="bench",
    summary="measure a server, or an engine, under load",
    description="Measure any OpenAI-compatible server, or the engine in this process, under a load like yours.",
    examples=_SERVE_EXAMPLES,
    commands=(
        Command(
            name="bench serve",
            summary="send a load and report what users would feel",
            description="Send a load to an OpenAI-compatible server, or to the engine in this process, and report "
            "times, rates and limits kept, each with its interval, and whether the figures may be believed. Ctrl-C "
            "ends it and reports on what there is.",
            examples=_SERVE_EXAMPLES,
            options=BenchOptions,
            module="noria.cli.bench_serve",
        ),
        Command(
            name="bench trace",
            summary="say what is in a trace of requests",
            description="Say what is in a trace: rate, burstiness, lengths, how much prompts share; and write it in "
            "another form.",
            examples=_TRACE_EXAMPLES,
            options=TraceCommandOptions,
            module="noria.cli.bench_trace",
        ),
        Command(
            name="bench batching",
            summary="static against continuous batching on your load",
            description="Run the same requests with static and with continuous batching, and draw what each sequence "
            "did in each step.",
            examples=_BATCHING_EXAMPLES,
            options=BatchingCommandOptions,
            module="noria.cli.bench_batching",
        ),
        Command(
            name="bench block-size",
            summary="what KV blocks waste against what their tables cost",
            description="Run the same requests with several block sizes: tokens that blocks hold in vain, against the "
            "time that tables and smaller blocks cost.",
            examples=_BLOCK_SIZE_EXAMPLES,
            options=BlockSizeCommandOptions,
            module="noria.cli.bench_block_size",
        ),
        Command(
            name="bench prefix",
            summary="what the prefix cache gains, and what it costs",
            description="Run the same load at several sharing ratios with and without the prefix cache: the gain at "
            "each, and the cost when nothing is shared.",
            examples=_PREFIX_EXAMPLES,
            options=PrefixCommandOptions,
            module="noria.cli.bench_prefix",
        ),
    ),
)

_DIFF_EXAMPLES = """\
examples:
  noria config diff runs/monday runs/tuesday
  noria config diff old/operating_point.json operating_point.json
"""

CONFIG = Group(
    name="config",
    summary="compare the settings of two runs, or of two operating points",
    description="Look at the settings that measurements were made with.",
    examples=_DIFF_EXAMPLES,
    commands=(
        Command(
            name="config diff",
            summary="what changed between two runs of noria bench, or between two operating points",
            description="Show what differs in the fingerprints of two runs, or in two operating points: engine, model, "
            "settings, workload, load and machine. Exit status 1 where something does.",
            examples=_DIFF_EXAMPLES,
            options=DiffCommandOptions,
            module="noria.cli.config_diff",
        ),
    ),
)
