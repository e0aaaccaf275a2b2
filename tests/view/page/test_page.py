"""The report is one file that shows the facts of nights, and trusts none of their words."""

import base64
import hashlib
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from made_facts import HOSTILE, made_night

from agent.judging.intervals import Interval
from agent.text import duration
from agent.view.page.drawings import progress_part
from agent.view.page.extras import Extras, diff, telling
from agent.view.page.head import certainty, claim, head
from agent.view.page.page import newer_state, page
from agent.view.page.page import state as state_of

NIGHT = made_night(31, titles=HOSTILE)
FIRST, BEST = NIGHT.attempts[0], NIGHT.attempts[NIGHT.incumbent or 0]
EXTRAS = Extras({("t", 1): "@@ -1 +1 @@\n-A = 1\n+A = '</script>'"}, {("t", 1): [(0.1, 5.0), (1.0, 3.0)]})


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

    def texts_of(self, tag: str) -> list[str]:
        return [text for (name, _), text in zip(self.found, self.texts, strict=True) if name == tag]

    @property
    def policy(self) -> dict[str, str]:
        text = next(attributes["content"] for _, attributes in self.found if "http-equiv" in attributes) or ""
        return dict(rule.split(" ", 1) for rule in text.split("; "))


@pytest.fixture(scope="module")
def elements() -> Elements:
    return Elements(page([NIGHT], EXTRAS))


def test_titles_are_text_whatever_they_contain(elements):
    assert [attributes for tag, attributes in elements.found if tag == "script"] == [
        {"type": "application/json", "id": "state"},
        {},
    ]
    assert [tag for tag, attributes in elements.found if "onerror" in attributes or tag in ("img", "iframe")] == []
    (night,) = json.loads(elements.texts_of("script")[0])["nights"]
    told = [row[night["columns"].index("title")] for row in night["rows"]][1 : len(HOSTILE) + 1]
    assert [title[:1000] for title in told] == [title[:1000] for title in HOSTILE]
    assert max(map(len, told)) == 2000  # of ten thousand
    assert night["diffs"]["1"].endswith("'</script>'")


def test_the_policy_allows_this_style_and_this_script_alone(elements):
    rules = elements.policy
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    for kind, text in (("script-src", elements.texts_of("script")[1]), ("style-src", elements.texts_of("style")[0])):
        assert rules[kind] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.slow
def test_a_live_page_takes_newer_states_from_its_server():
    nights = [made_night(4)]
    found = Elements(page(nights, Extras(), live="new EventSource('/events');"))
    assert found.policy["connect-src"] == "'self'"
    assert found.policy["script-src"].count("sha256-") == 2
    newer = json.loads(json.dumps(newer_state(nights, Extras())))
    places = {attributes["data-part"] for _, attributes in found.found if "data-part" in attributes}
    assert newer["parts"].keys() == places == {"head:t", "charts:t"}
    assert newer["nights"][0]["tag"] == "t"


def test_all_styles_stand_in_the_style_sheet_and_nothing_is_fetched(elements):
    for tag, attributes in elements.found:
        assert "style" not in attributes, tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)


def test_every_attempt_is_a_link_into_the_table(elements):
    links = [attributes["href"] or "" for tag, attributes in elements.found if tag == "a"]
    named = {int(link.rpartition("-")[2]) for link in links if link.startswith("#attempt-")}
    assert named == {one.number for one in NIGHT.attempts}


def test_the_head_says_what_was_tried_what_helped_and_how_sure_that_is(elements):
    said = " ".join(" ".join(elements.texts).split())
    kept = sum(one.status == "keep" for one in NIGHT.attempts[1:])
    went = f"val_bpb went down from {FIRST.val_bpb:.4f} to {BEST.val_bpb:.4f}"
    assert f"30 ideas tried, {kept} kept: {went}." in said
    assert NIGHT.dawn is not None
    assert NIGHT.dawn.honest is not None
    honest = NIGHT.dawn.honest
    assert f"{honest.mean_bpb:.4f} ({honest.low_bpb:.4f} to {honest.high_bpb:.4f})" in said
    assert "What helped" in said
    spent_h = sum(run.train_s + run.scoring_s for one in NIGHT.attempts for run in one.runs) / 3600
    assert f"Time spent {duration(spent_h)} " in said


def test_where_the_noise_is_not_known_no_interval_is_shown():
    unknown = replace(NIGHT, sigma_bpb=None, smallest_bpb=None, dawn=None)
    gain = f"{(FIRST.val_bpb or 0) - (BEST.val_bpb or 0):.4f}"
    assert f"<strong>{gain}</strong> bits per byte. How sure that is, is not known." in certainty(unknown)
    assert "its noise is not known" in head(unknown)
    assert "How sure<" not in head(unknown)
    assert "How sure<" in head(replace(NIGHT, dawn=None))


def test_a_gain_that_noise_explains_and_a_baseline_that_hardly_trains_are_said_first():
    assert "includes zero" not in certainty(replace(NIGHT, dawn=None))
    noisy = certainty(replace(NIGHT, dawn=None, sigma_bpb=1.0, doubt="its runs have 5 steps"))
    assert " The interval includes zero, so all of it may be luck. The baseline hardly trains (its runs have" in noisy
    kept = next(one for one in NIGHT.attempts[1:] if one.status == "keep")
    rest = tuple(replace(one, kind="provisional") if one is kept else one for one in NIGHT.attempts)
    assert f"<small>#{kept.number} · {kept.source} · provisional</small>" in head(replace(NIGHT, attempts=rest))


def test_the_head_names_a_day_once_and_the_workers_whose_time_it_adds_up():
    told = head(NIGHT)
    assert "2026-11-21 21:04 to 2026-11-22 06:40 UTC" in told
    assert "2026-11-21 21:04 to 23:59 UTC" in head(replace(NIGHT, ended="2026-11-21T23:59:59Z"))
    assert "2026-11-21 21:04 UTC" in head(replace(NIGHT, ended=NIGHT.started))
    one = replace(FIRST, runs=tuple(replace(run, worker=f"gpu {at}") for at, run in enumerate(FIRST.runs)))
    free = tuple(replace(each, usd=None) for each in NIGHT.sources)
    several = replace(NIGHT, attempts=(one, *NIGHT.attempts[1:]), sources=free)
    assert f"<small>{len(FIRST.runs) + 1} workers together</small>" in head(several)


def test_the_holdout_is_explained_where_it_is_shown():
    assert NIGHT.dawn is not None
    assert "on the holdout</span>" in head(NIGHT)
    assert "The holdout is text" in head(NIGHT)
    assert "oldout" not in head(replace(NIGHT, dawn=replace(NIGHT.dawn, holdout=None)))


def test_a_night_of_which_only_rows_are_left_is_not_advised_to_measure_again():
    lost = replace(NIGHT, lost=True, dawn=None)
    assert "nightshift confirm" not in head(lost)
    assert "nightshift confirm" not in head(replace(NIGHT, shipped=True, dawn=None))
    assert "only its rows of results.tsv are left" in head(lost)
    rows = [replace(one, kind=None, gain_bpb=None) for one in lost.attempts[:3]]
    (state,) = state_of([replace(lost, attempts=tuple(rows))], Extras())["nights"]
    told = [dict(zip(state["columns"], row, strict=True)) for row in state["rows"]]
    words = {"keep": "kept", "discard": "discarded", "crash": "crashed"}
    assert [row["kind"] for row in told] == ["baseline", *(words[one.status] for one in rows[1:])]
    assert told[1]["gain_bpb"] == pytest.approx(rows[0].val_bpb - rows[1].val_bpb, abs=1e-6)


def test_a_gain_that_dawn_has_not_confirmed_is_not_called_one():
    assert NIGHT.dawn is not None
    assert ">confirmed</strong>. <code>nightshift take t:confirmed</code>" in certainty(NIGHT)
    doubtful = replace(NIGHT.dawn, script=None, honest=Interval(0.002, -0.004, 0.008))
    assert "that may be luck, so it is <strong>not confirmed</strong>" in certainty(replace(NIGHT, dawn=doubtful))
    assert "<code>nightshift confirm t</code> measures it with more seeds" in certainty(replace(NIGHT, dawn=doubtful))
    assert "<code>" not in certainty(replace(NIGHT, shipped=True))
    worse = replace(NIGHT.dawn, script=None, honest=Interval(-0.005, -0.008, -0.002))
    assert "it is worse, so it is <strong>not confirmed</strong>" in certainty(replace(NIGHT, dawn=worse))
    trimmed = replace(NIGHT.dawn, script=30)
    assert "#30 is the <strong>confirmed</strong> script" in certainty(replace(NIGHT, dawn=trimmed))
    assert "<code>nightshift confirm t</code>" in certainty(replace(NIGHT, dawn=None))


def test_a_night_without_a_gain_says_why_or_how_to_go_on():
    fruitless = replace(NIGHT, attempts=(FIRST, NIGHT.attempts[1]), incumbent=0, dawn=None)
    assert "<code>nightshift run --tag t</code> tries more ideas." in certainty(fruitless)
    assert "<code>" not in certainty(replace(fruitless, lost=True))
    told = certainty(replace(fruitless, doubt="its runs have 1 step"))
    assert "The baseline hardly trains (its runs have 1 step)" in told
    assert "longer <code>--budget-s</code>" in told


def test_a_night_without_a_gain_says_so():
    unfinished = replace(FIRST, val_bpb=None, status=None, kind=None, words=None, runs=(), decisions=())
    begun = f"The baseline scores {FIRST.val_bpb:.4f} bits per byte, and no idea was tried yet."
    fruitless = f"1 idea tried, 0 kept: the baseline is still the best script, at {FIRST.val_bpb:.4f}."
    for attempts, best, sentence in (
        ((), None, "No idea was tried yet: the baseline is measured first."),
        ((unfinished,), None, "No idea was tried yet: the baseline is measured first."),
        ((unfinished, NIGHT.attempts[1]), None, "1 idea tried, and no script has a score yet."),
        ((FIRST,), 0, begun),
        ((FIRST, NIGHT.attempts[1]), 0, fruitless),
    ):
        night = replace(NIGHT, attempts=attempts, incumbent=best, dawn=None)
        assert claim(night) == sentence
        assert Elements(head(night)).texts_of("h1") == [sentence]
        assert ("<h2>Progress</h2>" in progress_part([night])) == any(one.val_bpb for one in attempts)


@pytest.mark.slow
def test_several_nights_stand_in_a_table_and_can_be_chosen():
    other = replace(made_night(12, "u"), device="NVIDIA H200")
    found = Elements(page([made_night(5), other], Extras()))
    assert [each["data-night"] for _, each in found.found if "data-night" in each] == ["t", "u"] * 2
    assert found.texts_of("h1") == ["2 nights compared"]
    links = {attributes["href"] for tag, attributes in found.found if tag == "a"}
    assert {"#attempt-t-4", "#attempt-u-11"} <= links
    assert "their scores do not compare" in "".join(found.texts)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "most_bytes"), [(100, 1.5e6), (10_000, 5e6)])
def test_the_page_stays_small(size, most_bytes):
    night = made_night(size)
    edit = "\n".join(f"{'+-'[at % 2]} a line of some script that was changed, the {at}th of it" for at in range(60))
    curve = [(at / 40, 5 - at / 20) for at in range(40)]
    keys = [("t", one.number) for one in telling(night)]
    extras = Extras(dict.fromkeys(keys, edit), dict.fromkeys(keys, curve))
    assert len(page([night], extras).encode()) < most_bytes


def test_of_a_long_night_the_edits_of_all_that_was_kept_and_of_the_newest_are_shown():
    night = made_night(400)
    kept = {one.number for one in night.attempts if any(made.status == "keep" for made in one.decisions)}
    assert {one.number for one in telling(night)} == kept | set(range(300, 400))


def test_an_edit_is_shown_as_a_unified_diff_and_cut_where_it_is_long():
    before = [f"line {number}" for number in range(1000)]
    after = [*before[:500], "another", *before[501:]]
    assert diff(before, after).split("\n")[0] == "@@ -498,7 +498,7 @@"
    assert {"-line 500", "+another"} <= set(diff(before, after).split("\n"))
    assert diff(before, before) == ""
    assert diff(before, [f"new {number}" for number in range(1000)]).split("\n")[-1] == "… 1701 more lines"


def test_half_a_surrogate_pair_in_a_title_is_written_as_a_question_mark():
    first = replace(FIRST, title="half \ud800 of a pair")
    text = page([replace(NIGHT, attempts=(first, *NIGHT.attempts[1:]))], Extras())
    assert "half ? of a pair" in text
    assert text.encode()
