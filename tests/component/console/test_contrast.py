"""WCAG contrast of the shipped style sheet, recomputed for both themes (docs: console design, section 2)."""

from __future__ import annotations

import re

import pytest

from config.environment import BASE_DIR

STYLES = BASE_DIR / "tenants" / "static" / "penstock" / "css"
TEXT_MIN, GRAPHICS_MIN = 4.5, 3.0
TEXT_PAIRS = (
    ("text", "surface"), ("text", "ground"), ("text", "accent-soft"), ("text", "sunk"), ("text", "raised"),
    ("muted", "surface"), ("muted", "ground"), ("muted", "sunk"), ("muted", "accent-soft"), ("muted", "warning-ground"),
    ("accent", "surface"), ("accent", "accent-soft"), ("on-accent", "accent"), ("on-accent", "accent-deep"),
    ("positive", "positive-soft"), ("positive", "surface"), ("warning", "warning-soft"), ("warning", "ground"),
    ("warning", "surface"), ("critical", "critical-soft"), ("critical", "surface"), ("on-ink", "ink"),
    ("on-ink-muted", "ink"), ("on-critical", "critical-fill"), ("on-badge", "badge"),
)  # fmt: skip
GRAPHICS_PAIRS = (
    ("field-line", "surface"), ("focus", "surface"), ("warning-fill", "surface"), ("critical-fill", "surface"),
    *((f"s{number}", "surface") for number in range(1, 7)),
)  # fmt: skip


def tokens(theme: str) -> dict[str, str]:
    text = (STYLES / "tokens.css").read_text(encoding="utf-8")
    both = re.findall(r"--([\w-]+): light-dark\((#[0-9A-F]{6}), (#[0-9A-F]{6})\);", text)
    alike = re.findall(r"--([\w-]+): (#[0-9A-F]{6});", text)
    return {name: light if theme == "light" else dark for name, light, dark in both} | dict(alike)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("front", "back"), TEXT_PAIRS)
def test_text_can_be_read(theme: str, front: str, back: str) -> None:
    known = tokens(theme)
    assert contrast(known[front], known[back]) >= TEXT_MIN


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("front", "back"), GRAPHICS_PAIRS)
def test_graphics_can_be_seen(theme: str, front: str, back: str) -> None:
    known = tokens(theme)
    assert contrast(known[front], known[back]) >= GRAPHICS_MIN


def test_the_figures_of_the_design_hold() -> None:
    light, dark = tokens("light"), tokens("dark")
    assert round(contrast(light["text"], light["surface"]), 2) == 16.06
    assert round(contrast(dark["text"], dark["surface"]), 2) == 14.58
    assert round(contrast(light["warning-fill"], light["surface"]), 2) == 3.29
    assert round(contrast(dark["on-critical"], dark["critical-fill"]), 2) == 5.13


def test_colours_have_their_home_in_the_tokens_alone() -> None:
    loose = {
        file.name: result
        for file in STYLES.glob("*.css")
        if file.name != "tokens.css" and (result := re.findall(r"#[0-9A-Fa-f]{3,8}\b(?![\w-]*\))", file.read_text()))
    }
    assert loose == {}
