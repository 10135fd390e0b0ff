"""A run held against a torch module, without a list of places to look at: tensors are named after submodules.

What an op reads is the input of the submodule whose tensor it uses first, so what the op before it wrote is compared
with that: the residual stream with the input of the norm it goes into, attention's result with the input of the output
projection. A module may be called several times; the calls come in the order of the ops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from noria.config.errors import ConfigError, ModelError
from noria.inspecting.comparing import Difference, difference
from noria.inspecting.traces import Trace

FileName = Callable[[str], str]  # of a tensor, by its logical name
LOGITS = "lm_head"


def load_module(target: str, path: str) -> Any:
    """What FUNCTION of PACKAGE.MODULE:FUNCTION returns for a model's folder. Raises ConfigError."""
    name, _, attributes = target.partition(":")
    try:
        found: Any = import_module(name)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
        return found(path).eval()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--against {target} gave no module: {type(error).__name__}: {error}") from error


def inputs_wanted(ours: Trace, file_name: FileName) -> list[tuple[int, str, int]]:
    """(place of the op whose result it is, submodule, which of its calls): where a module's input tells of a step."""
    wanted: list[tuple[int, str, int]] = []
    calls: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for step in ours.steps:
        if step.reads_from is None or not step.tensors:
            continue
        module = file_name(step.tensors[0]).rpartition(".")[0]
        if (module, step.reads_from) not in seen:  # two ops may share what one call of a norm gave
            seen.add((module, step.reads_from))
            wanted.append((step.reads_from, module, calls[module]))
            calls[module] += 1
    return sorted(wanted)


def differences_from(
    ours: Trace, file_name: FileName, inputs: dict[str, list[np.ndarray]], logits: np.ndarray
) -> list[Difference]:
    """inputs: by submodule, of each call [T, width]. Raises ModelError where none of the submodules is there."""
    found: list[Difference] = []
    for place, module, index in inputs_wanted(ours, file_name):
        calls = inputs.get(module, [])
        if index < len(calls):
            step = ours.steps[place]
            found.append(difference(place, step.label, step.values, calls[index]))
    if not found:
        raise ModelError("the module has no submodules that are named as the checkpoint's tensors are")
    for place, step in enumerate(ours.steps):
        if step.label.startswith(LOGITS):
            found.append(difference(place, step.label, step.values, logits))
    return found
