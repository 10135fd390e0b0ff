"""`noria inspect`: what a model is made of, and where two ways to compute it first differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from noria.config.asked import EngineOptions
from noria.config.errors import ConfigError
from noria.config.inspecting import ComparisonOptions, InspectOptions
from noria.config.resolve import resolve_dtype, resolve_kv_dtype
from noria.config.sizes import format_size
from noria.engine.opening import OpenedModel, open_model
from noria.inspecting.comparing import first_beyond
from noria.inspecting.running import Comparison, Form, against_module, against_reference
from noria.inspecting.tensors import TensorRow, tensor_rows
from noria.kernels.native.formats import Formats
from noria.kernels.select import Wanted, choose_backend, settle_level
from noria.models.footprint import kv_bytes
from noria.models.stored import StoredModel
from noria.tokenize.tokenizer import build_tokenizer

_MAX_TOKENS = 256  # of a prompt that is compared: every row's logits are kept


def run(options: InspectOptions) -> int:
    """1 where what is compared differs beyond the tolerance."""
    opened = open_model(options.model)
    stored = StoredModel(opened.checkpoint)
    form = _form(EngineOptions(options.model, options.memory), stored)
    rows = tensor_rows(stored, form.backend, Formats(form.dtype, form.quantization))
    comparison = _comparison(opened, form, options)
    report = _report(opened, stored, form, rows)
    if options.look.json:
        compared = None if comparison is None else _as_json(comparison, options.look.tolerance)
        print(json.dumps({**report, "tensors": [asdict(row) for row in rows], "comparison": compared}))
    else:
        _print_tensors(report, rows)
        if comparison is not None:
            _print_comparison(comparison, options.look.tolerance)
    is_off = comparison is not None and first_beyond(comparison.found, options.look.tolerance) is not None
    return int(is_off)


def _form(options: EngineOptions, stored: StoredModel) -> Form:
    """How the model would be served."""
    dtype = resolve_dtype(options, "cpu")
    model, memory = options.model, options.memory
    wanted = Wanted(
        dtype, stored.config.head_dim, memory.block_size, model.quantization, memory.kv_cache_dtype
    )
    backend = choose_backend(model.backend, wanted).name
    kv_dtype = resolve_kv_dtype(memory.kv_cache_dtype, dtype, backend)
    return Form(backend, dtype, kv_dtype, model.quantization, memory.block_size)


def _comparison(opened: OpenedModel, form: Form, options: InspectOptions) -> Comparison | None:
    look = options.look
    if not look.compare and look.against is None:
        return None
    if look.compare and look.against is not None:
        raise ConfigError("--compare and --against are two comparisons; ask for one of them")
    token_ids = _token_ids(opened, look)
    settle_level(form.backend, options.model.isa)
    if look.against is not None:
        return against_module(opened.checkpoint, form, token_ids, look.against)
    return against_reference(opened.checkpoint, form, token_ids)


def _token_ids(opened: OpenedModel, look: ComparisonOptions) -> list[int]:
    token_ids = build_tokenizer(opened.tokenizer).encode(look.prompt)
    if not 0 < len(token_ids) <= _MAX_TOKENS:
        raise ConfigError(f"--prompt must have 1 to {_MAX_TOKENS} tokens; it has {len(token_ids)}")
    return list(token_ids)


def _report(
    opened: OpenedModel, stored: StoredModel, form: Form, rows: Sequence[TensorRow]
) -> dict[str, Any]:
    config = stored.config
    return {
        "model": opened.name,
        "architecture": config.architecture,
        "format": opened.checkpoint.format,
        "backend": form.backend,
        "num_tensors": len(rows),
        "num_parameters": sum(_num_elements(row.shape) for row in rows),
        "stored_bytes": sum(row.stored_bytes for row in rows),
        "packed_bytes": sum(row.packed_bytes for row in rows),
        "kv_dtype": form.kv_dtype,
        "kv_bytes_per_token": kv_bytes(config, form.kv_dtype),
        "max_position": config.max_position,
    }


def _num_elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _print_tensors(report: dict[str, Any], rows: Sequence[TensorRow]) -> None:
    head = ("tensor", "in the file", "shape", "stored", "bytes", "packed", "bytes")
    lines = [head] + [
        (
            row.name,
            row.file_name,
            "x".join(map(str, row.shape)),
            row.stored_as,
            format_size(row.stored_bytes),
            row.packed_as,
            format_size(row.packed_bytes),
        )
        for row in rows
    ]
    _print_columns(lines, right=(4, 6))
    print(
        f"\n{report['num_parameters']:,} parameters of a {report['architecture']} model in {len(rows)} tensors: "
        f"{format_size(report['stored_bytes'])} stored, {format_size(report['packed_bytes'])} on the "
        f"{report['backend']} backend\n{format_size(report['kv_bytes_per_token'])} of KV a token "
        f"({report['kv_dtype']}), at most {report['max_position']} tokens"
    )


def _print_comparison(comparison: Comparison, tolerance: float) -> None:
    print(f"\n{comparison.ours} against {comparison.theirs}:")
    lines = [("op", "", "rows", "largest difference", "relative", "")]
    for one in comparison.found:
        mark = "*" if one.exceeds(tolerance) else ""
        lines.append((str(one.place), one.label, _shape(one.shape), f"{one.max_absolute:.3g}",
                      f"{one.relative:.3g}", mark))  # fmt: skip
    _print_columns(lines, right=(0, 3, 4))
    first = first_beyond(comparison.found, tolerance)
    if first is None:
        print(f"no op differs by more than {tolerance:g} of its reference")
    else:
        print(f"they first differ by more than {tolerance:g} after op {first.place}: {first.label}")


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _print_columns(lines: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _as_json(comparison: Comparison, tolerance: float) -> dict[str, Any]:
    first = first_beyond(comparison.found, tolerance)
    return {
        "ours": comparison.ours,
        "theirs": comparison.theirs,
        "tolerance": tolerance,
        "differences": [asdict(one) for one in comparison.found],
        "first_beyond_tolerance": None if first is None else asdict(first),
    }
