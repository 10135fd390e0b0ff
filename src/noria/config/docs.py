"""The reference page of all settings, written from the settings themselves.

`python -m noria.config.docs > docs/options.md` renews the page; a test compares the two.
"""

from __future__ import annotations

from itertools import chain, groupby

from noria.config.bench_others import (
    BatchOptions,
    CountOptions,
    RatiosOptions,
    RunsOptions,
    SizesOptions,
    TraceFileOptions,
)
from noria.config.benching import LoadOptions, ResultOptions, TargetOptions, WorkloadOptions
from noria.config.flags import default_words
from noria.config.generating import PromptOptions, SamplingOptions, TalkOptions
from noria.config.option import Setting, Several, settings_of
from noria.config.serving import ServeOptions
from noria.config.tuning import TuningOptions

_GROUPS = (
    ServeOptions,
    SamplingOptions,
    PromptOptions,
    TalkOptions,
    TargetOptions,
    WorkloadOptions,
    LoadOptions,
    ResultOptions,
    CountOptions,
    BatchOptions,
    SizesOptions,
    RatiosOptions,
    TraceFileOptions,
    RunsOptions,
    TuningOptions,
)

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

In Python the name is a keyword: `LLM(max_model_len=4096)`. A name that is not listed here is an error in all
places but the environment, where other programs put names of their own. The server's settings belong to
`noria serve` alone, those of sampling to `noria generate` and `noria chat`, those of prompts and of the
conversation to one of these, and those from "What is measured" on to `noria bench`, `noria config` and
`noria tune`.

Sizes are bytes, or carry a suffix: `512MiB` and `1.5GB` are binary and decimal. Lengths are tokens. One letter
alone is decimal when small and binary when capital, as in vLLM: `8k` is 8000, `8K` is 8192.

"""


def options_page() -> str:
    """The whole page, in Markdown."""
    settings = chain.from_iterable(settings_of(group) for group in _GROUPS)
    tables = [
        f"## {title}\n\n{_table(list(rows))}"
        for title, rows in groupby(settings, lambda setting: setting.title)
    ]
    return _INTRODUCTION + "\n".join(tables)


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
