"""Lanes as an SVG picture: what each place of a batch did, one panel above the other on one scale of time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from noria.bench.lanes import Lanes, Span

_WIDTH = 1000
_LEFT, _RIGHT = 70, 20
_LANE = 14
_HEAD, _FOOT = 40, 30
_GOLDEN_ANGLE = 137.508  # neighbouring numbers get colours that are far apart
_NUM_TICKS = 8


def draw(panels: Mapping[str, Lanes]) -> str:
    """An SVG document. panels: by title."""
    end_s = max((lanes.end_s for lanes in panels.values()), default=0.0) or 1.0
    parts: list[str] = []
    top = 0
    for title, lanes in panels.items():
        parts.append(_panel(title, lanes, end_s, top))
        top += _HEAD + _FOOT + _LANE * _height(lanes)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{top}' viewBox='0 0 {_WIDTH} {top}' "
        f"font-family='system-ui, sans-serif' font-size='12'>"
        f"<rect width='{_WIDTH}' height='{top}' fill='white'/>{''.join(parts)}</svg>"
    )


def _height(lanes: Lanes) -> int:
    return max([lanes.num_lanes, *(span.lane + 1 for span in lanes.spans)])


def _panel(title: str, lanes: Lanes, end_s: float, top: int) -> str:
    scale = (_WIDTH - _LEFT - _RIGHT) / end_s
    height = _LANE * _height(lanes)
    base = top + _HEAD
    words = f"{title}: {lanes.end_s:.1f} s, places idle {lanes.idle:.0%} of the time"
    parts = [
        f"<text x='{_LEFT}' y='{top + 24}' font-size='15' font-weight='600'>{escape(words)}</text>",
        f"<rect x='{_LEFT}' y='{base}' width='{lanes.end_s * scale:.1f}' height='{height}' fill='#eceff3'/>",
        *(_bar(number, span, scale, base) for number, span in enumerate(lanes.spans)),
        f"<text x='{_LEFT - 8}' y='{base + height / 2:.0f}' text-anchor='end'>places</text>",
        *(_tick(second, scale, base + height) for second in _ticks(end_s)),
    ]
    return "".join(parts)


def _bar(number: int, span: Span, scale: float, base: int) -> str:
    hue = number * _GOLDEN_ANGLE % 360
    left, middle, right = (
        _LEFT + moment_s * scale for moment_s in (span.start_s, span.prompt_end_s, span.end_s)
    )
    y, height = base + span.lane * _LANE + 1, _LANE - 2
    return (
        f"<g><title>{escape(span.request_id)}: {span.start_s:.2f} s to {span.end_s:.2f} s</title>"
        f"<rect x='{left:.1f}' y='{y}' width='{max(0.5, middle - left):.1f}' height='{height}' "
        f"fill='hsl({hue:.0f} 60% 32%)'/>"
        f"<rect x='{middle:.1f}' y='{y}' width='{max(0.0, right - middle):.1f}' height='{height}' "
        f"fill='hsl({hue:.0f} 60% 62%)'/></g>"
    )


def _tick(second: float, scale: float, y: int) -> str:
    x = _LEFT + second * scale
    return (
        f"<line x1='{x:.1f}' y1='{y}' x2='{x:.1f}' y2='{y + 5}' stroke='#5a6a7a'/>"
        f"<text x='{x:.1f}' y='{y + 18}' text-anchor='middle' fill='#5a6a7a'>{second:g} s</text>"
    )


def _ticks(end_s: float) -> list[float]:
    step = next(
        size * 10.0**power
        for power in range(-3, 6)
        for size in (1, 2, 5)
        if end_s / (size * 10.0**power) <= _NUM_TICKS
    )
    return [round(number * step, 6) for number in range(int(end_s / step) + 1)]
