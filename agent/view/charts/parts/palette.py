"""Name the colours of the charts, for light and dark paper.

A chart names a colour by its role. In a page the role is a CSS custom property, so one drawing serves both themes; in a
picture it is a concrete colour. Hues are those of Okabe & Ito (2008), which colour-blind readers can tell apart, with
the lightness that each paper needs.
"""

from enum import StrEnum
from typing import Any

from agent.text import harmless

Spec = dict[str, Any]  # a Vega-Lite specification


class Theme(StrEnum):
    LIGHT = "light"
    DARK = "dark"


class Colour(StrEnum):
    """Name the role of a colour, as specifications have it."""

    PAPER = "var(--chart-paper)"
    INK = "var(--chart-ink)"
    FAINT = "var(--chart-faint)"  # of words that matter less
    GRID = "var(--chart-grid)"
    KEPT = "var(--chart-kept)"
    REVOKED = "var(--chart-revoked)"
    DISCARDED = "var(--chart-discarded)"
    CRASHED = "var(--chart-crashed)"
    DOUBTED = "var(--chart-doubted)"
    OPEN = "var(--chart-open)"

    @property
    def property_name(self) -> str:
        return self.removeprefix("var(").removesuffix(")")


COLOURS = {  # role: (on light paper, on dark paper)
    Colour.PAPER: ("#ffffff", "#14171b"),
    Colour.INK: ("#1b1f24", "#e8eaed"),
    Colour.FAINT: ("#57606a", "#a2aab4"),
    Colour.GRID: ("#e6e9ed", "#2a2f36"),
    Colour.KEPT: ("#00805e", "#2fc79a"),
    Colour.REVOKED: ("#a86f00", "#f0b429"),
    Colour.DISCARDED: ("#848c95", "#868e98"),
    Colour.CRASHED: ("#d04a00", "#ff8a3d"),
    Colour.DOUBTED: ("#a8488f", "#e193cb"),
    Colour.OPEN: ("#0072b2", "#5eb1ef"),
}


def colours(theme: Theme) -> dict[Colour, str]:
    """Return the concrete colour of each role."""
    at = list(Theme).index(theme)
    return {role: pair[at] for role, pair in COLOURS.items()}


def css(theme: Theme) -> str:
    """Return the custom properties that a page's style sheet has to set for a theme."""
    return " ".join(f"{role.property_name}: {colour};" for role, colour in colours(theme).items())


def painted(part: Any, concrete: dict[Colour, str]) -> Any:
    """Return a copy of a specification with concrete colours in the places of their roles, and harmless texts.

    XML has no control characters: with one in a text, a drawing could not be read again.
    """
    if isinstance(part, dict):
        return {name: painted(inner, concrete) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [painted(inner, concrete) for inner in part]
    if isinstance(part, Colour):
        return concrete[part]
    return harmless(part) if isinstance(part, str) else part
