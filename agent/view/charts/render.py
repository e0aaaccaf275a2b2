"""Render a chart's specification as SVG or PNG, without a browser and without a network."""

import re
import xml.etree.ElementTree as ET
from types import ModuleType

from agent.errors import MachineError
from agent.invocation import install_command
from agent.view.charts.style import Colour, Spec, Theme, colours, painted

VEGA_LITE = "6.4"
SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
LONG_NUMBER = re.compile(r"(\.\d)\d+")
SAID_BY_DEFAULT = ("class", "aria-roledescription")  # attributes that nothing reads
NO_FILES: list[str] = []  # a chart holds its data; nothing may be loaded for it

ET.register_namespace("", SVG)
ET.register_namespace("xlink", LINK)


def svg(spec: Spec, theme: Theme | None = None, *, whole_px: float | None = None) -> str:
    """Draw a specification as SVG: with CSS custom properties for a page, or with the colours of a theme.

    whole_px: the width of which the drawing takes its share, however wide the place is that it stands in.
    """
    ready = _ready(spec, theme)
    drawn: str = _renderer().vegalite_to_svg(ready, vl_version=VEGA_LITE, allowed_base_urls=NO_FILES)
    return _tidy(drawn, str(ready.get("description", "")), whole_px)


def png(spec: Spec, theme: Theme = Theme.LIGHT, scale: float = 2.0) -> bytes:
    """Draw a specification as a PNG of scale pixels for each of its units."""
    ready = _ready(spec, theme)
    drawn: bytes = _renderer().vegalite_to_png(ready, vl_version=VEGA_LITE, scale=scale, allowed_base_urls=NO_FILES)
    return drawn


def _renderer() -> ModuleType:
    """Import the renderer, a library of 84 MB; raise MachineError where it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        there = install_command("vl-convert-python")
        raise MachineError(f"charts need vl-convert-python; install it: {there}") from error
    return vl_convert


def _ready(spec: Spec, theme: Theme | None) -> Spec:
    """Return the specification that is rendered: in a page its paper is the page's own."""
    concrete = {role: role.value for role in Colour} if theme is None else colours(theme)
    ready: Spec = painted(spec, concrete)
    return ready | {"background": "transparent" if theme is None else concrete[Colour.PAPER]}


# ---- the drawing -----------------------------------------------------------------------------------------------------


def _tidy(drawn: str, label: str, whole_px: float | None) -> str:
    """Name the drawing for screen readers, make its links relative, and leave out what draws nothing."""
    root = ET.fromstring(drawn)
    _prune(root)
    for element in root.iter():
        for name in SAID_BY_DEFAULT:
            element.attrib.pop(name, None)
        if element.get("opacity") == "1":
            del element.attrib["opacity"]
        for name in ("transform", "d"):
            if name in element.attrib:
                element.set(name, LONG_NUMBER.sub(r"\1", element.attrib[name]))
        if element.tag == f"{{{SVG}}}a":
            _link(element)
    if whole_px is not None:
        share = float(root.attrib["width"]) / whole_px
        root.set("width", f"{min(1.0, share):.1%}")
        del root.attrib["height"]  # the box of the view has the proportions
    root.set("role", "group")
    root.set("aria-label", label)
    return ET.tostring(root, encoding="unicode")


def _prune(parent: ET.Element) -> None:
    """Remove empty paths and empty groups."""
    for child in list(parent):
        _prune(child)
        empty_path = child.get("d") in ("", "M0,0h0v0h0Z") and not len(child)
        if empty_path or (child.tag == f"{{{SVG}}}g" and not len(child)):
            parent.remove(child)


def _link(element: ET.Element) -> None:
    """Point a link into the page that holds the drawing (Vega makes it absolute), and name the link itself."""
    _, _, anchor = element.attrib.pop(f"{{{LINK}}}href").partition("#")
    element.set("href", f"#{anchor}")
    for mark in element:
        element.set("aria-label", mark.attrib.pop("aria-label", ""))
        mark.attrib.pop("role", None)
