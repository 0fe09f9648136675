"""Draws the results of `benchmarks.sharing` as one SVG, legible on light and dark pages. Policies differ in colour, and
lines also in their dashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

WIDTH: Final = 900
LEFT: Final = 56
RIGHT: Final = 20
PLOT_WIDTH: Final = WIDTH - LEFT - RIGHT
BARS_TOP, BARS_HEIGHT = 64, 200
LINES_TOP, LINES_HEIGHT = 372, 200
HEIGHT: Final = 620
BAR_MAX: Final = 1.1
COLOURS: Final = {
    "static": "#8b949e", "literal": "#bf5af2", "normalised": "#e08600", "weighted": "#0a84ff", "adaptive": "#1f9d55",
}  # fmt: skip
DASHES: Final = {"static": "2 3", "literal": "8 3 2 3", "normalised": "6 4", "weighted": "4 2 1 2", "adaptive": "none"}
STYLE: Final = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 14px; font-weight: 600; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .bought { stroke: #24292f; stroke-width: 1; stroke-dasharray: 1 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .grid { stroke: #3d444d; }
    .bought { stroke: #e6edf3; }
  }
"""


def per_second(steps: Sequence[int], steps_per_second: int) -> list[int]:
    return [sum(steps[start : start + steps_per_second]) for start in range(0, len(steps), steps_per_second)]


def svg(rows: Sequence[Mapping[str, Any]], curves: Mapping[str, Sequence[int]], bought_bps: int) -> str:
    """Returns the SVG. `rows` are as in `benchmarks.sharing.figures`; `curves` has the bytes in each second of the
    moving hot spot, by policy.
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Utilisation of bandwidth by policy and scenario, and over time with a moving hot spot">',
        f"<style>{STYLE}</style>",
        *_legend(list(curves)),
        *_bars(rows, list(curves)),
        *_curves(curves, bought_bps),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}">{escape(text)}</text>'


def _grid(y: float, label: str, css: str = "grid") -> list[str]:
    line = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="{css}"/>'
    return [line, _text(LEFT - 8, y + 4, label, "end")]


def _legend(policies: Sequence[str]) -> list[str]:
    parts = []
    for number, policy in enumerate(policies):
        x = LEFT + 110 * number
        stroke = f'stroke="{COLOURS[policy]}" stroke-width="6" stroke-dasharray="none"'
        parts += [f'<line x1="{x}" x2="{x + 18}" y1="16" y2="16" {stroke}/>', _text(x + 24, 20, policy)]
    return parts


def _bars(rows: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> list[str]:
    parts = [_text(LEFT, BARS_TOP - 14, "Admitted share of the admissible bytes", css="title")]
    bottom = BARS_TOP + BARS_HEIGHT
    for percent in (0, 25, 50, 75, 100):
        parts += _grid(bottom - BARS_HEIGHT * percent / 100, f"{percent} %")
    scenarios = list(dict.fromkeys(row["scenario"] for row in rows))
    group_width = PLOT_WIDTH / len(scenarios)
    bar_width = group_width * 0.8 / len(policies)
    for number, scenario in enumerate(scenarios):
        x = LEFT + group_width * (number + 0.1)
        for row in (row for row in rows if row["scenario"] == scenario):
            policy, utilisation = row["policy"], row["utilisation"]
            height = BARS_HEIGHT * min(utilisation, BAR_MAX)
            bar_x = x + bar_width * policies.index(policy)
            parts.append(
                f'<rect x="{bar_x:.1f}" y="{bottom - height:.1f}" width="{bar_width - 2:.1f}" height="{height:.1f}" '
                f'fill="{COLOURS[policy]}"><title>{escape(policy)}: {utilisation:.1%}</title></rect>'
            )
        for line, words in enumerate(_wrapped(scenario)):
            parts.append(_text(x + group_width * 0.4, bottom + 18 + 14 * line, words, "middle"))
    return parts


def _wrapped(text: str, width: int = 15) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _curves(curves: Mapping[str, Sequence[int]], bought_bps: int) -> list[str]:
    parts = [_text(LEFT, LINES_TOP - 14, "Moving hot spot: MB/s admitted in each second", css="title")]
    bottom, top_bps = LINES_TOP + LINES_HEIGHT, bought_bps * 1.25
    seconds = max(len(curve) for curve in curves.values())
    for mb in range(0, int(top_bps / 1e6) + 1, 5):
        is_bought = mb * 1_000_000 == bought_bps
        parts += _grid(bottom - LINES_HEIGHT * mb * 1e6 / top_bps, str(mb), "bought" if is_bought else "grid")
    for second in range(0, seconds + 1, 10):
        parts.append(_text(LEFT + PLOT_WIDTH * second / seconds, bottom + 18, f"{second} s", "middle"))
    for policy, curve in curves.items():
        points = " ".join(
            f"{LEFT + PLOT_WIDTH * (second + 0.5) / seconds:.1f},{bottom - LINES_HEIGHT * min(size / top_bps, 1):.1f}"
            for second, size in enumerate(curve)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[policy]}" stroke-width="2" '
            f'stroke-dasharray="{DASHES[policy]}"/>'
        )
    return parts
