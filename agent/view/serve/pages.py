"""Make the report live: the page with a script that hears the events, and the newer states that it asks for."""

import html
import json
import re
from dataclasses import dataclass
from importlib.resources import files

from agent.view.page.extras import gather
from agent.view.page.page import newer_state, page
from agent.view.serve.feed import Snapshot

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
HEADER_ONLY = "frame-ancestors 'none'"  # a policy inside a page cannot say it


@dataclass(frozen=True, slots=True)
class LivePage:
    """Hold the page as it is sent, and its policy for the header."""

    body: bytes
    policy: str


def live_page(snapshot: Snapshot) -> LivePage:
    """Return the report with the live part."""
    text = page([snapshot.facts], gather(snapshot.watched.place, [snapshot.facts]), live=_script(snapshot))
    found = POLICY.search(text)
    assert found is not None, "a page has a policy"
    return LivePage(_sent(text), f"{html.unescape(found[1])}; {HEADER_ONLY}")


def newer(snapshot: Snapshot) -> bytes:
    """Return the state of a night as `update(state)` of the page takes it, with its version."""
    state = newer_state([snapshot.facts], gather(snapshot.watched.place, [snapshot.facts]))
    return _sent(compact({"tag": snapshot.facts.tag, "version": snapshot.version, "state": state}))


def _script(snapshot: Snapshot) -> str:
    """Return the script of the live part: its style comes with it, as the page's policy allows no further element."""
    style, script = (files(__package__).joinpath(f"live.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    facts = json.dumps({"tag": snapshot.facts.tag, "version": snapshot.version, "style": style})
    return f"const LIVE = {facts.replace('<', chr(92) + 'u003c')};\n{script}"


def compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


def _sent(text: str) -> bytes:
    return text.encode(errors="replace")  # a lone surrogate of a hostile title has no UTF-8
