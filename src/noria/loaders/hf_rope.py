"""Rotary embedding settings from a Hugging Face config.json, old style and new.

Old: `rope_theta` beside `rope_scaling` {"type" or "rope_type", ...}. New (transformers 5): everything in
`rope_parameters`, for models with several kinds of layers one table for each kind.
"""

from __future__ import annotations

from collections.abc import Callable

from noria.config.errors import ModelError
from noria.config.model import RopeConfig
from noria.loaders.fields import Fields, is_number, shorten
from noria.loaders.model_checks import rotary_dim_of

_LAYER_TYPES = ("full_attention", "sliding_attention")
_DEFAULT_THETA = 10000.0


def rope_config(fields: Fields, head_dim: int, max_position: int) -> RopeConfig:
    """fields: the whole config.json. Raises ModelError."""
    table = _table(fields)
    kind = table.text("rope_type", table.text("type", "default"))
    kind = "longrope" if kind == "su" else kind  # its first name
    build = _BUILDERS.get(kind)
    if build is None:
        raise ModelError(
            f"{table.source}: the rope type {shorten(kind)} is not supported; "
            f"supported are {', '.join(_BUILDERS)}"
        )
    theta = table.number("rope_theta", fields.number("rope_theta", _DEFAULT_THETA, above=1.0), above=1.0)
    share = table.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if share > 1.0:
        raise ModelError(f"{fields.source}: partial_rotary_factor must be at most 1, found {share:g}")
    rotary_dim = rotary_dim_of(int(head_dim * share), head_dim)
    if rotary_dim == 0 and share < 1.0:
        raise ModelError(
            f"{fields.source}: partial_rotary_factor {share:g} leaves no dimension of {head_dim}"
        )
    return build(_Source(table, fields, theta, rotary_dim, max_position))


class _Source:
    """What a builder reads from: the rope's own table, and the values that all kinds share."""

    def __init__(
        self, table: Fields, config: Fields, theta: float, rotary_dim: int, max_position: int
    ) -> None:
        self.table = table
        self.config = config
        self.theta = theta
        self.rotary_dim = rotary_dim
        self.max_position = max_position

    def original_max_position(self) -> int:
        """The context before scaling. Some models state it outside the rope's table, and then that counts."""
        key = "original_max_position_embeddings"
        outside = self.config.optional_integer(key, low=2)
        return outside or self.table.integer(key, self.max_position, low=2)

    def factors(self, key: str) -> tuple[float, ...]:
        values = self.table.values.get(key)
        if not isinstance(values, list) or not values or not all(is_number(v) and v > 0 for v in values):
            raise self.table.fault(key, "a list of finite numbers above 0")
        return tuple(float(value) for value in values)


def _table(fields: Fields) -> Fields:
    """The table that holds the rope's parameters; empty where the config states none."""
    for key in ("rope_scaling", "rope_parameters"):
        table = fields.optional_table(key)
        if table is not None and table.values:
            return _same_for_all_layers(table)
    return Fields({}, fields.source)


def _same_for_all_layers(table: Fields) -> Fields:
    nested = [table.optional_table(name) for name in _LAYER_TYPES if name in table]
    tables = [inner for inner in nested if inner is not None]
    if not nested:
        return table
    if len(tables) != len(nested) or any(inner.values != tables[0].values for inner in tables):
        raise ModelError(f"{table.source}: a rope that differs between kinds of layers is not supported")
    return tables[0]


def _default(source: _Source) -> RopeConfig:
    return RopeConfig("default", source.theta, source.rotary_dim)


def _linear(source: _Source) -> RopeConfig:
    return RopeConfig("linear", source.theta, source.rotary_dim, source.table.number("factor"))


def _dynamic(source: _Source) -> RopeConfig:
    return RopeConfig(
        "dynamic",
        source.theta,
        source.rotary_dim,
        source.table.number("factor"),
        original_max_position=source.max_position,
    )


def _yarn(source: _Source) -> RopeConfig:
    table, original = source.table, source.original_max_position()
    return RopeConfig(
        "yarn",
        source.theta,
        source.rotary_dim,
        table.number("factor", source.max_position / original),
        original_max_position=original,
        beta_fast=table.number("beta_fast", 32.0),
        beta_slow=table.number("beta_slow", 1.0),
        truncate=table.flag("truncate", True),
        attention_factor=table.optional_number("attention_factor"),
        mscale=table.optional_number("mscale", above=None),
        mscale_all_dim=table.optional_number("mscale_all_dim", above=None),
    )


def _longrope(source: _Source) -> RopeConfig:
    table, original = source.table, source.original_max_position()
    return RopeConfig(
        "longrope",
        source.theta,
        source.rotary_dim,
        table.number("factor", source.max_position / original),
        original_max_position=original,
        attention_factor=table.optional_number("attention_factor"),
        short_factor=source.factors("short_factor"),
        long_factor=source.factors("long_factor"),
    )


def _llama3(source: _Source) -> RopeConfig:
    table = source.table
    low, high = table.number("low_freq_factor"), table.number("high_freq_factor")
    if high <= low:
        raise table.fault("high_freq_factor", f"above low_freq_factor ({low:g})")
    return RopeConfig(
        "llama3",
        source.theta,
        source.rotary_dim,
        table.number("factor"),
        original_max_position=source.original_max_position(),
        low_freq_factor=low,
        high_freq_factor=high,
    )


_BUILDERS: dict[str, Callable[[_Source], RopeConfig]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
