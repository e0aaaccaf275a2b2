"""The report in a real browser: drawn, sorted, filtered, opened; by mouse, by keyboard, on a phone, in the dark."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import HOSTILE, long_night

from agent.view.page import Extras, page

pytestmark = pytest.mark.slow
NIGHT = long_night(60, titles=HOSTILE)
KEPT = [attempt for attempt in NIGHT.attempts[1:] if attempt.status == "keep"]
NUMBER = KEPT[0].number
EDIT = "@@ -1,2 +1,2 @@\n-A = 1\n+A = '<b>2</b>'\n B = 3"
EXTRAS = Extras({NUMBER: EDIT}, {NUMBER: [(at / 20, 6 - at / 10) for at in range(1, 21)]})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a night with hostile titles."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(NIGHT, EXTRAS), encoding="utf-8")
    return path


class Opened:
    """A page in a browser, with all that it asked for and complained about."""

    def __init__(self, browser: Any, file: Path, anchor: str = "", **settings: Any) -> None:
        self.page = browser.new_context(**settings).new_page()
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
    here.page.context.close()


def test_the_rows_are_shown_sorted_and_filtered(opened):
    assert opened.numbers == list(range(25))
    opened.page.get_by_role("button", name="Show all 60").click()
    assert opened.numbers == list(range(60))
    button = opened.page.get_by_role("button", name="val_bpb")
    button.click()
    scores = [float(text) for text in opened.column(4) if text != "–"]
    assert scores == sorted(scores)
    opened.page.get_by_role("button", name="#").click()
    opened.page.get_by_text(f"kept {len(KEPT)}").click()
    opened.page.get_by_label("Proposer", exact=True).select_option("search")
    assert opened.numbers == [attempt.number for attempt in KEPT if attempt.proposer == "search"]
    opened.page.get_by_label("Proposer", exact=True).select_option("")
    row = opened.page.locator(f"#attempt-{NUMBER}")
    row.locator("summary").first.click()
    assert "better than its parent" in row.inner_text()
    assert row.locator("ins").inner_text() == "+A = '<b>2</b>'"
    opened.page.locator("figure.chart svg:visible a[href='#attempt-55']").first.click()  # whatever the filters are
    assert opened.is_open(55)
    assert opened.page.url.endswith("#attempt-55")


def test_the_keyboard_goes_from_chart_to_chart_and_within_one_from_attempt_to_attempt(opened):
    keyboard, focused = opened.page.keyboard, "document.activeElement"
    keyboard.press("Tab")
    assert opened.page.evaluate(f"{focused}.className") == "skip"
    stops = opened.page.locator("figure.chart svg:visible a[tabindex='0']")
    assert stops.count() == opened.page.locator("figure.chart svg:visible:has(a)").count() > 2  # one for each drawing
    stops.first.focus()
    keyboard.press("ArrowRight")
    assert opened.page.evaluate(f"{focused}.getAttribute('href')") == "#attempt-1"
    assert opened.page.locator("#tip").inner_text().startswith("attempt 1, ")
    keyboard.press("Enter")
    assert opened.is_open(1)


def test_all_that_can_be_used_has_a_name_for_screen_readers(opened):
    for role in ("button", "link", "searchbox", "combobox", "radio", "img", "columnheader", "region"):
        every = opened.page.get_by_role(role)
        named = opened.page.get_by_role(role, name=re.compile(r"\S"))
        assert named.count() == every.count(), role


def test_a_foreign_script_does_not_run(browser, file, tmp_path):
    broken = tmp_path / "broken.html"
    evil = "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'><script src='https://a.invalid/x.js'>"
    text = file.read_text(encoding="utf-8").replace("<main>", f"<main>{evil}</script>")
    broken.write_text(text, encoding="utf-8")
    here = Opened(browser, broken)
    here.page.evaluate("document.body.setAttribute('onclick', 'window.evil = 3')")
    here.page.locator("h1").click()
    assert here.page.evaluate("window.evil === undefined")
    assert len(here.numbers) == 25  # the page's own script does
    assert any("Content Security Policy" in words for words in here.complaints)


@pytest.mark.parametrize(
    ("width", "letters", "scheme"), [(390, 100, "light"), (1400, 100, "dark"), (390, 200, "light")]
)
def test_the_page_fits_a_phone_and_a_desk_in_light_and_dark_and_with_large_letters(
    browser, file, width, letters, scheme
):
    here = Opened(browser, file, "#attempt-4", viewport={"width": width, "height": 850}, color_scheme=scheme)
    here.page.evaluate(f"document.documentElement.style.fontSize = '{letters}%'")
    assert here.is_open(4)
    assert not here.is_too_wide()
    paper = sum(
        map(int, here.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)"))
    )
    assert paper > 600 if scheme == "light" else paper < 150
    for figure in here.page.locator("figure.chart").all():
        assert figure.locator("svg:visible").count() == 1
    assert here.complaints == []


def test_without_javascript_all_is_there_but_sorting_and_filters(browser, file):
    here = Opened(browser, file, java_script_enabled=False)
    assert here.page.locator(".row:visible").count() == 60
    here.page.locator("#attempt-3 > summary").click()
    assert here.page.locator("#attempt-3 .grid").is_visible()
    assert not here.page.locator("#filters").is_visible()
