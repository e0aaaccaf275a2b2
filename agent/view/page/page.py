"""Put the report together: one HTML file that needs no network, with its style, its script and its data inside.

Its Content-Security-Policy names the hashes of the style and of the scripts, and allows nothing else: no other script,
no evaluation of text, no request. So a title cannot become a program, even if a defect let it become HTML.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from agent.clock import utc_now
from agent.view.charts.parts.palette import Theme
from agent.view.charts.parts.palette import css as chart_colours
from agent.view.facts.nouns import NightFacts
from agent.view.page.drawings import progress_part, story_parts
from agent.view.page.extras import Extras
from agent.view.page.head import claim, comparison, head
from agent.view.page.rows import first_rows, night_state

PageState = dict[str, object]


def page(nights: Sequence[NightFacts], extras: Extras, live: str | None = None) -> str:
    """Return the report of one night, or of several beside each other, as HTML.

    live: a further script, which may ask the server that the page came from, and calls `update(state)` of page.js.
    """
    css, scripts = _style(), [_file("page.js"), *filter(None, [live])]
    all_parts = parts(nights)
    tags = [night.tag for night in nights]
    before = [f"compare:{'+'.join(tags)}"] if len(nights) > 1 else []
    fields = {
        "policy": _policy(css, scripts, connect=live is not None),
        "title": escape(
            f"{', '.join(tags)}: {claim(nights[0])}" if len(nights) == 1 else f"{', '.join(tags)}, compared"
        ),
        "icon": "data:,",
        "css": css,
        "before": _placed(before, all_parts) + _chooser(tags) + _of_nights("head", tags, all_parts),
        "rows": first_rows(nights[0]),
        "after": _of_nights("charts", tags, all_parts),
        "written": escape(utc_now().replace("T", " ").replace("Z", " UTC")),
        "state": _in_script(json.dumps(state(nights, extras), separators=(",", ":"), ensure_ascii=False)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    text = re.sub(r"\{(\w+)\}", lambda field: fields[field[1]], _file("page.html"))
    return text.encode(errors="replace").decode()  # a record's title may hold half a surrogate pair, which no file can


def state(nights: Sequence[NightFacts], extras: Extras) -> PageState:
    """Return what page.js shows in the table."""
    return {"nights": [night_state(night, extras) for night in nights]}


def newer_state(nights: Sequence[NightFacts], extras: Extras) -> PageState:
    """Return what `update(state)` of page.js takes to show the nights as they stand now, head and charts included."""
    return state(nights, extras) | {"parts": parts(nights)}


def parts(nights: Sequence[NightFacts]) -> dict[str, str]:
    """Return the parts of the page around the table as HTML, by their names."""
    found: dict[str, str] = {}
    if len(nights) > 1:
        name = f"compare:{'+'.join(night.tag for night in nights)}"
        found[name] = comparison(nights) + progress_part(nights)
    for night in nights:
        alone = progress_part([night]) if len(nights) == 1 else ""
        found[f"head:{night.tag}"] = head(night, among=len(nights)) + alone
        found[f"charts:{night.tag}"] = story_parts(night, several=len(nights) > 1)
    return found


def _of_nights(kind: str, tags: Sequence[str], all_parts: dict[str, str]) -> str:
    """Place a part for each night; the first night's is shown."""
    return "".join(
        f'<div data-part="{kind}:{escape(tag)}" data-night="{escape(tag)}"{" hidden" if at else ""}>'
        f"{all_parts[f'{kind}:{tag}']}</div>"
        for at, tag in enumerate(tags)
    )


def _placed(names: Sequence[str], all_parts: dict[str, str]) -> str:
    return "".join(f'<div data-part="{escape(name)}">{all_parts[name]}</div>' for name in names)


def _chooser(tags: Sequence[str]) -> str:
    if len(tags) == 1:
        return ""
    options = "".join(f"<option>{escape(tag)}</option>" for tag in tags)
    return f'<section class="chooser"><label for="night">Night</label> <select id="night">{options}</select></section>'


def _policy(css: str, scripts: Sequence[str], *, connect: bool) -> str:
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
        f"style-src {_hash(css)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if connect else []),
    ]
    return "; ".join(rules)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _style() -> str:
    """Return the style sheet, with the colours of the charts for both themes."""
    light, dark = (f":root {{ {chart_colours(theme)} }}" for theme in (Theme.LIGHT, Theme.DARK))
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n{_file('page.css')}"


def _in_script(text: str) -> str:
    """Return JSON in a form that cannot end the element that it stands in."""
    return text.replace("<", "\\u003c")


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
