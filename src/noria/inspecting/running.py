"""Backends made for one prompt, and the runs on them that are compared."""

from __future__ import annotations

import os
from dataclasses import dataclass

from noria.config.errors import ConfigError
from noria.inspecting.comparing import Difference, differences
from noria.inspecting.modules import differences_from, inputs_wanted, load_module
from noria.inspecting.traces import Trace, trace
from noria.kernels.ops import BackendOptions
from noria.kernels.select import load_backend
from noria.models.build import cache_shape
from noria.models.stored import ModelFile, StoredModel

REFERENCE = "torch"
_REFERENCE_DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class Form:
    """How a backend keeps weights and KV."""

    backend: str
    dtype: str
    kv_dtype: str
    quantization: str
    block_size: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """ours, theirs: what was compared, in words. found: in the order of the forward."""

    ours: str
    theirs: str
    found: list[Difference]


def against_reference(file: ModelFile, form: Form, token_ids: list[int]) -> Comparison:
    """form's backend and the reference ops in float32."""
    reference = Form(REFERENCE, _REFERENCE_DTYPE, _REFERENCE_DTYPE, "none", form.block_size)
    ours, theirs = _run(file, form, token_ids), _run(file, reference, token_ids)
    return Comparison(form.backend, f"{REFERENCE} in {_REFERENCE_DTYPE}", differences(ours, theirs))


def against_module(file: ModelFile, form: Form, token_ids: list[int], target: str) -> Comparison:
    """form's backend and a torch module. Raises ConfigError for one that cannot be had or run."""
    module = load_module(target, file.path)
    from noria.kernels.torch_ops.hooks import run_hooked

    ours = _run(file, form, token_ids)
    file_name = StoredModel(file).file_name
    names = {name for _, name, _ in inputs_wanted(ours, file_name)}
    try:
        inputs, logits = run_hooked(module, token_ids, names)
    except Exception as error:
        raise ConfigError(
            f"--against {target}: the module failed: {type(error).__name__}: {error}"
        ) from error
    return Comparison(form.backend, target, differences_from(ours, file_name, inputs, logits))


def _run(file: ModelFile, form: Form, token_ids: list[int]) -> Trace:
    num_blocks = -(-len(token_ids) // form.block_size)
    stored = StoredModel(file)
    shape = cache_shape(stored.config, form.block_size, num_blocks)
    backend = load_backend(form.backend)(
        BackendOptions(
            form.dtype, "cpu", len(os.sched_getaffinity(0)), shape, form.quantization, form.kv_dtype
        )
    )
    return trace(stored, form.backend, backend, token_ids, form.block_size)
