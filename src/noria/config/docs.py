"""The reference page of all settings, written from the settings themselves.

`python -m noria.config.docs > docs/options.md` renews the page; a test compares the two.
"""

from __future__ import annotations

from itertools import groupby

from noria.config.asked import EngineOptions, MemoryOptions, ModelOptions
from noria.config.bench_others import (
    BatchOptions,
    CountOptions,
    RatiosOptions,
    RunsOptions,
    SizesOptions,
    TraceFileOptions,
)
from noria.config.benching import (
    LoadOptions,
    ProgressOptions,
    ResultOptions,
    TargetOptions,
    TextsOptions,
    WorkloadOptions,
)
from noria.config.calibrating import CalibrationOptions
from noria.config.flags import default_words
from noria.config.generating import PromptOptions, SamplingOptions, TalkOptions
from noria.config.inspecting import ComparisonOptions
from noria.config.option import Setting, Several, settings_of
from noria.config.serving import QueueOptions, ServerOptions
from noria.config.simulating import SimulationOptions
from noria.config.tools import ToolOptions
from noria.config.tuning import TuningOptions

_PLAYS = "`noria bench` (but `trace`), `noria simulate` and `noria tune`"

# Groups of settings, and who takes them.
_GROUPS: tuple[tuple[type, str], ...] = (
    (EngineOptions, "every subcommand that runs an engine, and `LLM`"),
    (QueueOptions, "`noria serve`"),
    (ServerOptions, "`noria serve`"),
    (SamplingOptions, "`noria generate` and `noria chat`"),
    (PromptOptions, "`noria generate`"),
    (TalkOptions, "`noria chat`"),
    (TargetOptions, "`noria bench serve`"),
    (WorkloadOptions, _PLAYS),
    (LoadOptions, "`noria bench serve` and `noria simulate`"),
    (ResultOptions, _PLAYS),
    (ProgressOptions, "`noria bench serve`, `noria simulate` and `noria tune`"),
    (TextsOptions, "`noria bench serve`"),
    (CountOptions, "`noria bench batching`, `block-size` and `prefix`"),
    (BatchOptions, "`noria bench batching`"),
    (SizesOptions, "`noria bench block-size`"),
    (RatiosOptions, "`noria bench prefix`"),
    (TraceFileOptions, "`noria bench trace`"),
    (RunsOptions, "`noria config diff`"),
    (CalibrationOptions, "`noria calibrate`"),
    (SimulationOptions, "`noria simulate`"),
    (TuningOptions, "`noria tune`"),
    (ComparisonOptions, "`noria inspect`"),
)
_OPENS = "every subcommand that opens a model, and `LLM`"
# Groups that are inside another one.
_OF_OTHERS_TOO = {ModelOptions: _OPENS, MemoryOptions: _OPENS, ToolOptions: "`noria serve` and `LLM`"}

_INTRODUCTION = """\
# Settings

<!-- Written by `python -m noria.config.docs`; edit the fields in src/noria/config instead. -->

Every setting has one name, and four places where it may stand. The first that is used wins:

1. a flag: `--max-model-len 4096`
2. an environment variable: `NORIA_MAX_MODEL_LEN=4096`; a setting that takes several values has them separated
   by commas
3. a file, given by `--config FILE` or `NORIA_CONFIG`, in YAML or JSON: `max-model-len: 4096`; dashes or
   underscores
4. an operating point, given by `--operating-point FILE`: settings that were found to carry a load
   ([operating-point.md](operating-point.md))
5. the default

In Python the name is a keyword, `LLM(max_model_len=4096)`, beside which nothing else is looked at but an
`operating_point`. A name that the subcommand does not take is an error in all places but the environment, where
other programs put names of their own. Below each heading is who takes its settings; what little `noria pull` and
`noria plugins` take is in their `--help`.

Two things are told by the environment alone: `NORIA_CACHE`, the directory in which pulled models lie (else
`noria` in the user's cache directory), and what the Hugging Face hub's own library knows (`HF_HOME`, `HF_TOKEN`,
`HF_HUB_OFFLINE`, ...).

Sizes are bytes, or carry a suffix: `512MiB` and `1.5GB` are binary and decimal. Lengths are tokens. One letter
alone is decimal when small and binary when capital, as in vLLM: `8k` is 8000, `8K` is 8192.

"""


def options_page() -> str:
    """The whole page, in Markdown."""
    told = [
        (setting, _OF_OTHERS_TOO.get(setting.group, takers))
        for group, takers in _GROUPS
        for setting in settings_of(group)
    ]
    return _INTRODUCTION + "\n".join(
        _section(title, list(rows)) for title, rows in groupby(told, lambda row: row[0].title)
    )


def _section(title: str, told: list[tuple[Setting, str]]) -> str:
    """told: settings, and who takes each."""
    (_, most), *_ = told
    others = [f"`{setting.flag}` by {takers}" for setting, takers in told if takers != most]
    words = "; ".join([f"Taken by {most}", *others])
    return f"## {title}\n\n{words}.\n\n{_table([setting for setting, _ in told])}"


def options_table(cls: type) -> str:
    """The settings of a group of options as a Markdown table."""
    return _table(list(settings_of(cls)))


def _table(settings: list[Setting]) -> str:
    head = "| setting | default | what it is for |\n|---|---|---|\n"
    return head + "".join(_row(setting) for setting in settings)


def _row(setting: Setting) -> str:
    about = setting.about
    names = [f"`{name}`" for name in (setting.flag, *about.aliases)]
    if about.fallbacks:
        names.append("(environment also: " + ", ".join(f"`{name}`" for name in about.fallbacks) + ")")
    cells = (" ".join(names), default_words(setting), f"{about.help} {_value_words(setting)}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _value_words(setting: Setting) -> str:
    about = setting.about
    words = about.requirement
    if about.synonyms:
        words += " (" + ", ".join(f"{synonym} is {name}" for synonym, name in about.synonyms) + ")"
    if about.several is not Several.NO:
        words += "; several may be given"
    words = words.replace("*", "\\*")
    return f"*{words[0].upper()}{words[1:]}.*"


if __name__ == "__main__":
    print(options_page(), end="")
