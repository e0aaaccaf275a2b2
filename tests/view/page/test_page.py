"""The report is one file that shows the facts of a night, and trusts none of their words."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from charted import attempt, changed, every_outcome, renamed, revoked
from charted import night as night_of
from made_facts import HOSTILE, made_night

from agent.experiment import Kind
from agent.judging.intervals import Interval
from agent.records.record import Home, Record
from agent.text import duration
from agent.view.page.page import Extras, branches, diff, page, telling

NIGHT = made_night(31, titles=HOSTILE)
FIRST, BEST = NIGHT.attempts[0], NIGHT.attempts[NIGHT.incumbent or 0]
EXTRAS = Extras({1: "@@ -1 +1 @@\n-A = 1\n+A = '</script>'"}, {1: [(0.1, 5.0), (1.0, 3.0)]})


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):  # the line end behind it is no part of it
            self.handle_starttag("", [])

    def texts_of(self, tag: str, of: str | None = None) -> list[str]:
        pairs = zip(self.found, self.texts, strict=True)
        return [text for (name, attributes), text in pairs if name == tag and of in (None, attributes.get("class"))]

    @property
    def policy(self) -> dict[str, str]:
        text = next(attributes["content"] for _, attributes in self.found if "http-equiv" in attributes) or ""
        return dict(rule.split(" ", 1) for rule in text.split("; "))


def said(night: Record) -> str:
    """How sure the gain is, as HTML."""
    return part(page(night), '<p class="lead">', "</p>")


def part(text: str, begin: str, end: str) -> str:
    """What stands between two parts of a page, with single blanks."""
    return " ".join(text.partition(begin)[2].partition(end)[0].split())


def figures(night: Record) -> dict[str, tuple[str, str]]:
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)<small>(.*?)</small>", page(night))
    return {name: (value, more) for name, value, more in found}


def where(night: Record) -> str:
    return part(page(night), '<p class="eyebrow">', "</p>")


@pytest.fixture(scope="module")
def elements() -> Elements:
    return Elements(page(NIGHT, EXTRAS))


def test_titles_are_text_whatever_they_contain(elements):
    assert [attributes for tag, attributes in elements.found if tag == "script"] == [{}]
    assert [tag for tag, attributes in elements.found if "onerror" in attributes or tag in ("img", "iframe")] == []
    told = [text for text in elements.texts_of("span", "title") if text][1 : len(HOSTILE) + 1]
    assert [title[:1000] for title in told] == [title[:1000] for title in HOSTILE]
    assert max(map(len, told)) == 2000  # of ten thousand
    assert [text.strip() for text in elements.texts_of("ins")] == ["+A = '</script>'"]


def test_the_policy_allows_this_style_and_this_script_alone(elements):
    rules = elements.policy
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    for kind, text in (("script-src", elements.texts_of("script")[0]), ("style-src", elements.texts_of("style")[0])):
        assert rules[kind] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_a_live_page_may_ask_its_server_and_says_which_version_it_shows():
    found = Elements(page(made_night(4), live="new EventSource('/events');", version=7))
    assert found.policy["connect-src"] == "'self'"
    assert found.policy["script-src"].count("sha256-") == 2
    assert [attributes["data-version"] for tag, attributes in found.found if tag == "main"] == ["7"]


def test_all_styles_stand_in_the_style_sheet_and_nothing_is_fetched(elements):
    for tag, attributes in elements.found:
        assert "style" not in attributes, tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_every_attempt_is_a_row_that_links_lead_to(elements):
    rows = {attributes["id"] for tag, attributes in elements.found if tag == "details"}
    assert rows == {f"attempt-{one.number}" for one in NIGHT.attempts}
    links = {attributes["href"] for tag, attributes in elements.found if tag == "a"} - {"#attempts"}
    assert links == {f"#{row}" for row in rows}


def test_the_head_says_what_was_tried_what_helped_and_how_sure_that_is():
    text, kept = page(NIGHT), sum(one.status == "keep" for one in NIGHT.attempts[1:])
    assert part(text, '<h1 class="claim">', "</h1>") == (
        f"30 ideas tried, {kept} kept: val_bpb went down from {FIRST.val_bpb:.4f} to {BEST.val_bpb:.4f}."
    )
    assert NIGHT.findings is not None
    assert NIGHT.findings.honest is not None
    honest = NIGHT.findings.honest
    assert f"{honest.mean_bpb:.4f} ({honest.low_bpb:.4f} to {honest.high_bpb:.4f})" in said(NIGHT)
    assert part(text, '<ol class="helped">', "</ol>").count("<li>") == min(6, kept)
    for name in ("in the night", "on fresh seeds", "on the holdout"):
        assert f'<span class="soft">{name}</span>' in text
    spent_h = sum(run.spent_s for one in NIGHT.attempts for run in one.runs) / 3600
    assert figures(NIGHT)["Time spent"][0] == duration(spent_h)


def test_where_the_noise_is_not_known_no_interval_is_shown():
    unknown = changed(NIGHT, sigma_bpb=None, dawn=None)
    gain = f"{(FIRST.val_bpb or 0) - (BEST.val_bpb or 0):.4f}"
    assert f"<strong>{gain}</strong> bits per byte. How sure that is, is not known. The best of many" in said(unknown)
    assert figures(unknown)["Gain in the night"] == (gain, "its noise is not known")
    assert "How sure<" not in page(unknown)


def test_a_gain_that_noise_explains_and_a_baseline_that_hardly_trains_are_said_first():
    assert "includes zero" not in said(changed(NIGHT, dawn=None))
    noisy = said(changed(NIGHT, dawn=None, sigma_bpb=1.0, doubt="its runs have 5 steps"))
    assert " The interval includes zero, so all of it may be luck. The baseline hardly trains (its runs have" in noisy
    kept = next(one for one in NIGHT.attempts[1:] if one.status == "keep")
    assert kept.decision is not None
    provisional = replace(kept, decision=replace(kept.decision, kind=Kind.PROVISIONAL))
    rest = tuple(provisional if one is kept else one for one in NIGHT.attempts)
    assert f"{kept.source} · provisional" in page(changed(NIGHT, attempts=rest))


def test_the_head_names_a_day_once_and_the_workers_whose_time_it_adds_up():
    assert where(NIGHT).endswith("2026-11-21 21:04 to 2026-11-22 06:40 UTC")
    early = changed(NIGHT, attempts=(replace(FIRST, runs=(replace(FIRST.runs[0], ended="2026-11-21T23:59:59Z"),)),))
    assert where(early).endswith("2026-11-21 21:04 to 23:59 UTC")
    assert where(changed(NIGHT, attempts=(replace(FIRST, runs=()),))).endswith(" 2026-11-21 21:04 UTC")
    one = replace(FIRST, runs=tuple(replace(run, worker=f"gpu {at}") for at, run in enumerate(FIRST.runs)))
    several = changed(NIGHT, attempts=(one, *NIGHT.attempts[1:]), asks=())
    assert figures(several)["Time spent"][1] == f"{len(FIRST.runs) + 1} workers together"


def test_a_night_from_elsewhere_is_not_advised_to_measure_again():
    assert "nightshift confirm" not in said(changed(NIGHT, home=Home.SHIPPED, dawn=None))


def test_a_gain_that_dawn_has_not_confirmed_is_not_called_one():
    assert NIGHT.findings is not None
    assert ">confirmed</strong>. <code>nightshift take t:confirmed</code>" in said(NIGHT)
    doubtful = changed(NIGHT, dawn=replace(NIGHT.findings, script=None, honest=Interval(0.002, -0.004, 0.008)))
    assert "that may be luck, so it is <strong>not confirmed</strong>" in said(doubtful)
    assert "<code>nightshift confirm t</code> measures it with more seeds" in said(doubtful)
    assert "<code>" not in said(changed(NIGHT, home=Home.SHIPPED))
    worse = replace(NIGHT.findings, script=None, honest=Interval(-0.005, -0.008, -0.002))
    assert "it is worse, so it is <strong>not confirmed</strong>" in said(changed(NIGHT, dawn=worse))
    trimmed = replace(NIGHT.findings, script=30)
    assert "#30 is the <strong>confirmed</strong> script" in said(changed(NIGHT, dawn=trimmed))
    assert "<code>nightshift confirm t</code>" in said(changed(NIGHT, dawn=None))


def test_a_night_without_a_gain_says_why_or_how_to_go_on():
    fruitless = changed(NIGHT, attempts=(FIRST, NIGHT.attempts[1]), dawn=None)
    assert "<code>nightshift run --tag t</code> tries more ideas." in said(fruitless)
    assert "<code>" not in said(changed(fruitless, home=Home.SHIPPED))
    told = said(changed(fruitless, doubt="its runs have <1> step"))
    assert "The baseline hardly trains (its runs have &lt;1&gt; step)" in told
    assert "longer <code>--budget-s</code>" in told


def test_a_night_without_a_gain_says_so():
    unfinished = replace(FIRST, decision=None, runs=(), decisions=())
    begun = f"The baseline scores {FIRST.val_bpb:.4f} bits per byte, and no idea was tried yet."
    fruitless = f"1 idea tried, 0 kept: the baseline is still the best script, at {FIRST.val_bpb:.4f}."
    for attempts, sentence in (
        ((), "No idea was tried yet: the baseline is measured first."),
        ((unfinished,), "No idea was tried yet: the baseline is measured first."),
        ((unfinished, NIGHT.attempts[1]), "1 idea tried, and no script has a score yet."),
        ((FIRST,), begun),
        ((FIRST, NIGHT.attempts[1]), fruitless),
    ):
        text = page(changed(NIGHT, attempts=attempts, dawn=None))
        assert [said.strip() for said in Elements(text).texts_of("h1")] == [sentence]
        assert ("<h2>Progress</h2>" in text) == any(one.val_bpb for one in attempts)


@pytest.mark.parametrize(("size", "most_bytes"), [(300, 1e6), pytest.param(10_000, 25e6, marks=pytest.mark.slow)])
def test_the_page_stays_small(size, most_bytes):
    night = made_night(size)
    edit = "\n".join(f"{'+-'[at % 2]} a line of some script that was changed, the {at}th of it" for at in range(12))
    curve = [(at / 40, 5 - at / 20) for at in range(40)]
    numbers = [one.number for one in telling(night)]
    assert len(page(night, Extras(dict.fromkeys(numbers, edit), dict.fromkeys(numbers, curve))).encode()) < most_bytes


def test_of_a_long_night_the_edits_of_all_that_was_kept_and_of_the_newest_are_shown():
    night = made_night(400)
    kept = {one.number for one in night.attempts if one.was_kept}
    assert {one.number for one in telling(night)} == kept | set(range(325, 400))


def test_an_edit_is_shown_as_a_unified_diff_and_cut_where_it_is_long():
    before = [f"line {number}" for number in range(1000)]
    after = [*before[:500], "another", *before[501:]]
    assert diff(before, after).split("\n")[0] == "@@ -498,7 +498,7 @@"
    assert {"-line 500", "+another"} <= set(diff(before, after).split("\n"))
    assert diff(before, before) == ""
    assert diff(before, [f"new {number}" for number in range(1000)]).split("\n")[-1] == "… 1701 more lines"


def test_half_a_surrogate_pair_in_a_title_is_written_as_a_question_mark():
    first = renamed(FIRST, title="half \ud800 of a pair")
    text = page(changed(NIGHT, attempts=(first, *NIGHT.attempts[1:])))
    assert "half ? of a pair" in text
    assert text.encode()


# ---- the tree of kept edits, hours and sources -----------------------------------------------------------------------


def depths(night: Record) -> list[tuple[int, int]]:
    return [(edit.number, depth) for edit, depth in branches(night)]


def test_the_best_scripts_ancestors_lie_in_one_line_and_others_below_their_parents_beside_it():
    assert depths(every_outcome()) == [(0, 0), (5, 1), (2, 0), (3, 0)]
    kept = attempt(5, Kind.KEPT, 1.0, gain_bpb=0.2, parent=0)
    off = [replace(revoked(number, 1.1, after=9), parent=parent) for number, parent in ((1, 0), (2, 0), (3, 1), (4, 2))]
    last = replace(revoked(6, 1.1, after=9), parent=5)
    tree = depths(night_of(attempt(0, Kind.BASELINE, 1.2), *off, kept, last))
    assert tree == [(0, 0), (1, 1), (3, 2), (2, 1), (4, 2), (5, 0), (6, 1)]
    text = " ".join(page(every_outcome()).split())
    assert '<a class="title" dir="auto" href="#attempt-3">#3 a longer warm-up</a>' in text
    assert "+0.0400 · 90%</span>" in text
    assert "+0.1100 · revoked</span>" in text


def test_of_many_kept_edits_those_of_the_largest_gains_are_shown_below_their_nearest_ancestors():
    kept = [attempt(at, Kind.KEPT, 2 - at / 1000, gain_bpb=at % 7 / 1000, parent=at - 1) for at in range(1, 200)]
    tree = depths(night_of(attempt(0, Kind.BASELINE, 2.0), *kept))
    assert len(tree) == 60
    assert {(number, 0) for number in range(6, 200, 7)} < set(tree)


def test_an_edit_that_was_overtaken_names_the_one_that_merges_it():
    attempts = (
        attempt(0, Kind.BASELINE, 1.2),
        attempt(1, Kind.KEPT, 1.15, gain_bpb=0.05),
        attempt(2, Kind.OVERTAKEN, 1.16, "a wider MLP", gain_bpb=0.04),
        attempt(3, Kind.KEPT, 1.11, "a wider MLP, merged", gain_bpb=0.04, parent=1, merges=2),
        attempt(4, Kind.OVERTAKEN, 1.17, "which none merges yet", parent=0),
    )
    assert depths(night_of(*attempts)) == [(0, 0), (2, 1), (1, 0), (3, 0)]
    assert 'merged as <a href="#attempt-3">#3</a>' in page(night_of(*attempts))


def test_hours_and_sources_say_what_they_took_brought_and_cost_as_far_as_that_is_known():
    text = re.sub("(<[^>]*>)+", "|", page(every_outcome()))
    for words in (
        "1 h 00 min · 98%",
        "|1 of 8|0.0500|40 min|",
        "|1 of 1|0.0400|6 min|2, 1 failed|12,000, 3,400|$0.12|",
    ):
        assert words in text, words
    free = re.sub("<[^>]*>", "|", page(changed(every_outcome(), asks=())))
    assert "US dollars" not in free
    assert "calls of a model" not in free
