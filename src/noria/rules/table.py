"""The decoding rules that installed packages add; none is built in."""

from __future__ import annotations

from noria.config.plugins import SAMPLERS_GROUP, Table

SAMPLERS = Table(SAMPLERS_GROUP, {})
