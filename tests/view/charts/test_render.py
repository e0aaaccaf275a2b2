"""A drawing is safe in a page: no code, no styles, no foreign address, and colours that follow the theme."""

import re
import struct
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from charted import changed, every_outcome, links, renamed, tree

from agent.errors import MachineError
from agent.view.charts.progress import progress_chart
from agent.view.charts.render import SVG, png, svg
from agent.view.charts.story import lineage_chart, tradeoffs_chart
from agent.view.charts.style import COLOURS, Colour, Theme, colours, css

# neither scripts nor styles, and no definitions, whose names would clash with those of another drawing in the page
ALLOWED = {f"{{{SVG}}}{name}" for name in ("svg", "g", "path", "rect", "line", "text", "tspan", "a")}
WORDS = {Colour.INK, Colour.FAINT}
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" 'twice' &amp; </text></svg><svg onload=alert(1)>",
    "two\ttabs\tand\na line\r\nend \x00\x1b[31m\x07",
    "long " * 2000,
    "\u202egnp.exe \u200f עברית العربية",
    "🌙🧪 👩‍🔬 emoji",
    "var(--chart-kept) {{datum}} ${1+1} http://x.invalid/#a",
    "\ud800 half a character",
)


def luminance(colour: str) -> float:
    """Return the relative luminance by WCAG 2."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", Theme)
def test_marks_and_words_stand_out_from_the_paper(theme):
    concrete = colours(theme)
    paper = luminance(concrete[Colour.PAPER])
    for role in COLOURS.keys() - {Colour.PAPER, Colour.GRID}:
        dark, light = sorted((paper, luminance(concrete[role])))
        assert (light + 0.05) / (dark + 0.05) >= (4.5 if role in WORDS else 3), role


def test_a_style_sheet_sets_every_colour_that_a_drawing_names():
    named = set(re.findall(r"var\((--chart-\w+)\)", svg(progress_chart(every_outcome(), 800))))
    assert len(named) > 7
    for theme in Theme:
        assert named <= set(re.findall(r"(--chart-\w+): #", css(theme)))


@pytest.mark.parametrize("theme", Theme)
def test_a_drawing_in_a_theme_needs_no_page(theme):
    drawn = svg(progress_chart(every_outcome(), 800), theme)
    assert "var(" not in drawn
    assert f'fill="{colours(theme)[Colour.PAPER]}"' in drawn


def test_a_picture_has_as_many_pixels_as_were_asked_for():
    spec = progress_chart(every_outcome(), 400)
    sizes = []
    for scale in (1, 2):
        picture = png(spec, Theme.DARK, scale)
        assert picture.startswith(b"\x89PNG")
        sizes.append(struct.unpack(">I", picture[16:20])[0])
    assert sizes == [392, 784]


def test_in_a_page_a_drawing_takes_its_share_of_the_width_whatever_that_is():
    spec = progress_chart(every_outcome(), 400)
    own = ET.fromstring(svg(spec)).attrib
    share = ET.fromstring(svg(spec, whole_px=800)).attrib
    assert share["width"] == f"{float(own['width']) / 800:.1%}"
    assert "height" not in share
    assert share["viewBox"] == own["viewBox"]


def test_a_drawing_has_no_code_no_style_and_no_foreign_address():
    for spec in (progress_chart(every_outcome(), 800), tradeoffs_chart(every_outcome(), 800)):
        root = tree(spec)
        for element in root.iter():
            assert element.tag in ALLOWED
            assert not {"style", "class"} & element.attrib.keys()
            assert not [name for name in element.attrib if name.startswith("on")]
            assert element.get("href", "#").startswith("#")
        assert root.get("role") == "group"
        assert "val_bpb" in root.attrib["aria-label"]


def test_hostile_titles_are_text():
    pairs = zip(every_outcome().attempts, [*HOSTILE, *HOSTILE], strict=False)
    titled = tuple(renamed(one, title=title) for one, title in pairs)
    tagged = [changed(every_outcome(), tag=title[:60], device=title, attempts=titled[:2]) for title in HOSTILE]
    one = replace(tagged[0], attempts=titled)
    charts = (tradeoffs_chart(one, 800), lineage_chart(one, 800))
    drawn_alone = (progress_chart(night, 820, titled=True) for night in tagged)
    for spec in (progress_chart(one, 358), *drawn_alone, *charts):
        drawn = svg(spec)
        root = ET.fromstring(drawn)
        assert {one.tag for one in root.iter()} <= ALLOWED
        texts = ["".join(one.itertext()) for one in root.iter(f"{{{SVG}}}text")]
        said = [root.attrib["aria-label"], *texts, *links(root), *links(root).values()]
        assert all(text.isprintable() for text in said)
        assert max(map(len, said[1:])) < 300
        assert "\u202e" not in drawn
        assert not [one for one in root.iter() if any(name.startswith("on") for name in one.attrib)]


def test_without_the_renderer_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MachineError, match=r"charts need vl-convert-python; install it: .*install.* vl-convert-python"):
        svg(progress_chart(every_outcome(), 800))
