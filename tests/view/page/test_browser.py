"""The report in a real browser: drawn, sorted, filtered, opened; by mouse, by keyboard, on a phone, in the dark."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_facts import HOSTILE, made_night

from agent.view.page.page import Extras, page

pytestmark = pytest.mark.slow
NIGHT = made_night(60, titles=HOSTILE)
KEPT = [one for one in NIGHT.attempts[1:] if one.status == "keep"]
PARENT = KEPT[0].parent or 0
EDIT = "@@ -1,2 +1,2 @@\n-A = 1\n+A = '<b>2</b>'\n B = 3"
CURVES = {number: [(at / 20, 6 - at / 10) for at in range(1, 21)] for number in (PARENT, KEPT[0].number)}
EXTRAS = Extras({KEPT[0].number: EDIT}, CURVES)
SIZES = [(390, 844), (1400, 900)]
Page = Any  # of Playwright, which may be missing


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a night with hostile titles."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(NIGHT, EXTRAS), encoding="utf-8")
    return path


class Opened:
    """A page in a browser, with all that it asked for and complained about."""

    def __init__(self, browser: Any, file: Path, anchor: str = "", **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.address = file.as_uri()
        self.page.goto(self.address + anchor)

    def column(self, at: int) -> list[str]:
        """The cells of the rows that are shown."""
        return list(self.page.locator(f".row:visible > summary > :nth-child({at})").all_inner_texts())

    @property
    def numbers(self) -> list[int]:
        return [int(text) for text in self.column(1)]

    def is_open(self, number: int) -> bool:
        return bool(self.page.locator(f"#attempt-{number}").evaluate("row => row.open"))

    def is_too_wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Opened]:
    here = Opened(browser, file, viewport={"width": 1400, "height": 900})
    yield here
    assert here.complaints == []
    assert [url for url in here.requests if url.partition("#")[0] != here.address] == []  # no request leaves the page
    here.context.close()


def test_every_chart_is_drawn(opened):
    figures = opened.page.locator("figure.chart")
    assert opened.page.locator("h2").all_inner_texts()[2:] == [
        "Progress",
        "Every attempt",
        "Which edit stands on which",
        "What a score costs",
        "Which dials were turned",
        "Hours and sources",
    ]
    assert figures.count() == 1 + 3 + 5  # progress, costs, dials
    for figure in figures.all():
        drawing = figure.locator("svg:visible")
        box = drawing.bounding_box()
        assert box["width"] > 150
        assert box["height"] > 50
        assert drawing.get_attribute("aria-label")
    assert opened.page.locator("figure.chart svg:visible a").count() >= len(NIGHT.attempts)


def test_the_first_rows_are_shown_and_a_button_shows_the_others(opened):
    assert opened.numbers == list(range(25))
    opened.page.get_by_role("button", name="Show all 60").click()
    assert opened.numbers == list(range(60))
    assert not opened.page.locator("#all").is_visible()


def test_the_rows_sort_by_a_column_both_ways(opened):
    opened.page.locator("#all").click()
    button = opened.page.get_by_role("button", name="val_bpb")
    button.click()
    scores = [float(text) for text in opened.column(4) if text != "–"]
    assert scores == sorted(scores)
    assert set(opened.column(4)[len(scores) :]) <= {"–"}
    button.press("Enter")
    assert [float(text) for text in opened.column(4) if text != "–"] == sorted(scores, reverse=True)
    opened.page.get_by_role("button", name="Gain").click()
    assert opened.numbers[0] == max(NIGHT.attempts, key=lambda one: one.gain_bpb or -1).number


def test_the_rows_are_filtered_by_status_source_and_words(opened):
    opened.page.get_by_text(f"kept {len(KEPT)}").click()
    assert opened.numbers == [one.number for one in KEPT]
    opened.page.get_by_label("Source", exact=True).select_option("search")
    assert opened.numbers == [one.number for one in KEPT if one.source == "search"]
    opened.page.get_by_text("all 60").click()
    opened.page.get_by_label("Source", exact=True).select_option("")
    opened.page.get_by_label("Search", exact=True).fill("EMOJI  🌙")
    assert opened.numbers == [6]
    assert opened.page.locator("#left-out").inner_text() == "1 of 60 attempts, those that the filters chose."


def test_a_row_opens_and_closes_by_a_click_and_by_the_keyboard(opened):
    number = KEPT[0].number
    opened.page.locator("#all").click()
    row = opened.page.locator(f"#attempt-{number}")
    row.locator("summary").first.click()
    words = row.inner_text()
    assert KEPT[0].proposal.hypothesis in words
    assert (KEPT[0].words or "") in words
    assert row.locator("ins").inner_text() == "+A = '<b>2</b>'"
    assert row.locator("del").inner_text() == "-A = 1"
    assert row.get_by_role("img").get_attribute("aria-label") == f"Training loss of attempt {number}, at last 4.000"
    assert row.locator("table tr").count() == 1 + len(KEPT[0].runs)
    row.locator("summary").first.press("Enter")
    assert not opened.is_open(number)


def test_the_keyboard_goes_from_chart_to_chart_and_within_one_from_attempt_to_attempt(opened):
    keyboard, focused = opened.page.keyboard, "document.activeElement"
    keyboard.press("Tab")
    assert opened.page.evaluate(f"{focused}.className") == "skip"
    stops = opened.page.locator("figure.chart svg:visible a[tabindex='0']")
    assert stops.count() == opened.page.locator("figure.chart svg:visible:has(a)").count()  # one for each drawing
    stops.first.focus()
    first = opened.page.evaluate(f"{focused}.getAttribute('href')")
    keyboard.press("ArrowRight")
    assert (first, opened.page.evaluate(f"{focused}.getAttribute('href')")) == ("#attempt-0", "#attempt-1")
    assert opened.page.locator("#tip").inner_text().startswith("attempt 1, ")
    keyboard.press("Enter")
    assert opened.is_open(1)


def test_all_that_can_be_used_has_a_name_for_screen_readers(opened):
    opened.page.locator("#attempt-3 > summary").click()
    for role in ("button", "link", "textbox", "searchbox", "combobox", "radio", "img", "columnheader", "region"):
        every = opened.page.get_by_role(role)
        named = opened.page.get_by_role(role, name=re.compile(r"\S"))
        assert named.count() == every.count(), role
    assert opened.page.get_by_role("group", name=re.compile(r"^Progress: the val_bpb of every attempt")).count() == 1
    assert opened.page.get_by_role("heading", level=1).count() == 1


def test_a_dot_of_a_chart_leads_to_its_row_whatever_the_filters_are(opened):
    opened.page.get_by_label("Search", exact=True).fill("nothing has these words")
    opened.page.locator("figure.chart svg:visible a[href='#attempt-55']").first.click()
    assert opened.is_open(55)
    assert opened.page.url.endswith("#attempt-55")
    assert 0 <= opened.page.locator("#attempt-55").bounding_box()["y"] < 900


def test_an_address_with_an_attempt_opens_its_row(browser, file):
    here = Opened(browser, file, "#attempt-42")
    assert here.is_open(42)
    here.context.close()


def test_a_foreign_script_does_not_run(browser, file, tmp_path):
    broken = tmp_path / "broken.html"
    text = file.read_text(encoding="utf-8")
    evil = (
        "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
        "<script src='https://example.org/x.js'></script>"
    )
    broken.write_text(text.replace("<main>", f"<main>{evil}"), encoding="utf-8")
    here = Opened(browser, broken)
    assert here.page.evaluate("window.evil === undefined")
    assert len(here.numbers) == 25  # the page's own script does
    assert any("Content Security Policy" in words for words in here.complaints)
    here.page.evaluate("document.body.setAttribute('onclick', 'window.evil = 3')")
    here.page.locator("h1").click()
    assert here.page.evaluate("window.evil === undefined")
    here.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_page_fits_a_phone_and_a_desk_in_light_and_dark(browser, file, width, height, scheme):
    here = Opened(browser, file, "#attempt-4", viewport={"width": width, "height": height}, color_scheme=scheme)
    assert not here.is_too_wide()
    paper, ink = (
        sum(map(int, here.page.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).slice(0, 3)")))
        for name in ("backgroundColor", "color")
    )
    assert (paper > 600 and ink < 150) if scheme == "light" else (paper < 150 and ink > 600)
    for figure in here.page.locator("figure.chart").all():
        assert figure.locator("svg:visible").count() == 1
    assert here.complaints == []
    here.context.close()


def test_at_twice_the_size_nothing_is_cut_off(browser, file):
    """A browser's zoom of 200 % halves the width that the page has."""
    here = Opened(browser, file, "#attempt-4", viewport={"width": 700, "height": 450}, device_scale_factor=2)
    assert not here.is_too_wide()
    large = Opened(browser, file, "#attempt-4", viewport={"width": 390, "height": 844})
    large.page.evaluate("document.documentElement.style.fontSize = '200%'")  # letters alone, as phones do
    assert not large.is_too_wide()
    for one in (here, large):
        one.context.close()


def test_without_javascript_all_is_there_but_sorting_and_filters(browser, file):
    here = Opened(browser, file, java_script_enabled=False)
    assert here.page.locator("h1").inner_text().startswith("59 ideas tried")
    assert here.page.locator(".row:visible").count() == 60
    here.page.locator("#attempt-3 > summary").click()
    assert here.page.locator("#attempt-3 .grid").is_visible()
    assert here.page.locator("figure.chart svg:visible").count() >= 1
    assert not here.page.locator("#filters").is_visible()
    here.context.close()


def test_a_newer_page_is_shown_and_open_rows_filters_and_focus_stay(opened):
    opened.page.locator("#attempt-3 > summary").click()
    opened.page.locator(".choice .discard").click()
    opened.page.evaluate("html => renew(html)", page(made_night(80)))
    assert opened.page.locator("h1").inner_text().startswith("79 ideas tried")
    assert opened.is_open(3)
    assert opened.page.locator("[name=status][value=discard]").is_checked()
    assert opened.page.evaluate("document.activeElement.value") == "discard"
    opened.page.locator("figure.chart svg:visible a[href='#attempt-75']").first.click()
    assert opened.is_open(75)


def test_on_paper_there_are_all_rows_that_the_filters_choose(opened):
    def rows() -> int:
        return int(opened.page.locator(".row:visible").count())

    opened.page.emulate_media(media="print")
    assert rows() == 60
    opened.page.emulate_media(media="screen")
    opened.page.get_by_text(f"kept {len(KEPT)}").click()
    opened.page.locator(f"#attempt-{KEPT[0].number} > summary").click()
    opened.page.emulate_media(media="print")
    assert rows() == len(KEPT)
    for part in (".diff", "p"):
        for one in opened.page.locator(f"#attempt-{KEPT[0].number} {part}").all():
            assert one.evaluate("one => one.scrollHeight <= one.clientHeight + 1")  # nothing is cut
