"""The report is one file that shows the facts of a night, and trusts none of their words."""

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from samples import HOSTILE, a_run, attempt, changed, findings, long_night, night

from agent.experiment import Kind, Noise
from agent.findings import Interval
from agent.records.record import Record
from agent.text import harmless_lines
from agent.view import charts
from agent.view.page import Extras, Live, diff, page, telling
from agent.view.terminal import measured_facts

NIGHT = long_night(31, titles=HOSTILE)
FIRST, BEST = NIGHT.attempts[0], NIGHT.attempts[NIGHT.best_number or 0]
DOUBTFUL = replace(NIGHT.findings, script=None, honest=Interval(0.002, -0.004, 0.008))
SHORT = Noise(1.0, 3, 0.01, "its runs have <1> step")
EXTRAS = Extras({1: "@@ -1 +1 @@\n-A = 1\n+A = '</script>'"}, {1: [(0.1, 5.0), (1.0, 3.0)]})


class Elements(HTMLParser):
    """The elements of a page with their attributes and the text behind each tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = tag, attributes, text + data

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("", {}, ""))

    def texts_of(self, tag: str, of: str | None = None) -> list[str]:
        return [text for name, attributes, text in self.found if name == tag and of in (None, attributes.get("class"))]

    @property
    def policy(self) -> dict[str, str]:
        text = next(attributes["content"] for _, attributes, _ in self.found if "http-equiv" in attributes) or ""
        return dict(rule.split(" ", 1) for rule in text.split("; "))


def words_of(record: Record, begin: str, end: str) -> str:
    """Return what stands between two parts of a page, as text with single blanks."""
    part = page(record).partition(begin)[2].partition(end)[0]
    return unescape(" ".join(re.sub("<[^>]*>", "", part).split()))


@pytest.fixture(scope="module")
def elements() -> Elements:
    return Elements(page(NIGHT, EXTRAS))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the drawings out, which take most of the time."""
    monkeypatch.setattr(charts, "svg", lambda spec, size: "")


def test_titles_are_text_and_nothing_is_fetched_whatever_they_contain(elements):
    assert [attributes for tag, attributes, _ in elements.found if tag == "script"] == [{}]
    for tag, attributes, _ in elements.found:
        assert tag not in ("img", "iframe")
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    titles = [text for text in elements.texts_of("span", "title") if text][1 : len(HOSTILE) + 1]
    assert [title[:1000] for title in titles] == [harmless_lines(title)[:1000] for title in HOSTILE]
    assert max(map(len, titles)) == 2000  # the title has ten thousand characters
    assert [text.strip() for text in elements.texts_of("ins")] == ["+A = '</script>'"]


def test_the_policy_allows_this_style_and_this_script_alone(elements):
    rules = elements.policy
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    for kind, text in (("script-src", elements.texts_of("script")[0]), ("style-src", elements.texts_of("style")[0])):
        assert rules[kind] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    live = Elements(page(long_night(4), live=Live(3.0)))
    assert live.policy == rules | {"connect-src": "'self'"}


def test_an_opened_row_tells_the_facts_that_show_tells(undrawn):
    rows = page(NIGHT).split('<dl class="pairs">')[1:]
    for row, shown in zip(rows, NIGHT.attempts, strict=True):
        facts = unescape(row.partition("</dl>")[0])
        told = [f"<dt>{name}<dd>{value}" for name, value in measured_facts(NIGHT, shown).items() if value]
        assert [fact for fact in told if fact not in facts] == []


def test_the_head_says_what_was_tried_what_helped_and_how_sure_that_is(undrawn):
    kept, honest = sum(attempt.status == "keep" for attempt in NIGHT.attempts[1:]), NIGHT.findings.honest
    assert words_of(NIGHT, '<h1 class="claim">', "</h1>") == (
        f"30 ideas tried, {kept} kept: val_bpb went down from {FIRST.val_bpb:.4f} to {BEST.val_bpb:.4f}."
    )
    said = words_of(NIGHT, '<p class="lead">', "</p>")
    assert f"{honest.mean_bpb:+.4f} [{honest.low_bpb:+.4f}, {honest.high_bpb:+.4f}]" in said
    assert "confirmed. nightshift take t:confirmed" in said
    assert page(NIGHT).partition('<ol class="helped">')[2].partition("</ol>")[0].count("<li>") == min(6, kept)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"confirmation": DOUBTFUL}, "so it is not confirmed. nightshift confirm t measures it with more seeds."),
        ({"confirmation": None}, "only fresh seeds tell. nightshift confirm t measures it again."),
        ({"confirmation": None, "noise": SHORT}, "The baseline hardly trains (its runs have <1> step), so its noise"),
        # no commands: the night cannot go on here
        ({"confirmation": None, "is_here": False}, "only fresh seeds tell."),
    ],
)
def test_the_head_says_what_to_do_next_where_the_night_is_here(undrawn, facts, words):
    said = words_of(changed(NIGHT, **facts), '<p class="lead">', "</p>")
    assert words in said
    assert ("nightshift" in said) == facts.get("is_here", True)


def test_where_seeds_change_no_score_the_head_speaks_of_no_noise_and_of_no_interval(undrawn):
    sure = findings(Interval(0.25, 0.25, 0.25), best=1)
    still = night(
        attempt(0, Kind.BASELINE, 1.5, seeds=3), attempt(1, Kind.KEPT, 1.25), sigma_bpb=0.0, confirmation=sure
    )
    head = words_of(still, '<dl class="figures">', "</dl>")
    assert "Noise of one runnoneseeds change no score" in head
    assert not re.search(r"not known|\[|luck", head)


def test_the_time_of_several_workers_is_said_to_be_a_sum_without_counting_those_of_each_machine(undrawn):
    one = night(attempt(0, Kind.BASELINE, runs=[a_run(0, 1.5, worker="local")]))
    assert "training and scoring" in page(one)
    moved = changed(one, attempts=(*one.attempts, attempt(1, Kind.WORSE, runs=[a_run(0, 1.6, worker="gpu 0")])))
    assert "all workers together" in page(moved)


def test_of_a_thousand_dials_that_an_attempt_turned_the_page_shows_sixty_and_how_many_more(undrawn):
    first, then = ("".join(f"D{at} = {at + more}\n" for at in range(1000)) for more in (0, 1))
    made = night(attempt(0, Kind.BASELINE, 1.5, script=first), attempt(1, Kind.WORSE, 1.6, script=then))
    facts = page(made).partition('id="attempt-1"')[2].partition("</dl>")[0]
    assert "<dt>D59<dd>59 → 60<dt>and<dd>940 more" in facts


@pytest.mark.slow
def test_of_a_long_night_what_was_kept_and_the_newest_edits_are_shown_and_the_page_stays_small():
    made = long_night(300)
    kept = {attempt.number for attempt in made.attempts if attempt.was_kept}
    numbers = {attempt.number for attempt in telling(made)}
    assert numbers == kept | set(range(200, 300))
    edit = "\n".join(f"{'+-'[at % 2]} a line of some script that was changed, the {at}th of it" for at in range(12))
    curve = tuple((at / 30, 5 - at / 20) for at in range(30))
    assert len(page(made, Extras(dict.fromkeys(numbers, edit), dict.fromkeys(numbers, curve))).encode()) < 1e6
    before = [f"line {number}" for number in range(1000)]
    assert diff(before, [*before[:500], "another", *before[501:]]).split("\n")[0] == "@@ -498,7 +498,7 @@"
    assert diff(before, [f"new {number}" for number in range(1000)]).split("\n")[-1] == "… 1701 more lines"
