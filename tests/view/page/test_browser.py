"""The report in a real browser: drawn, sorted, filtered, opened; by mouse, by keyboard, on a phone, in the dark."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_facts import HOSTILE, made_night

from agent.view.page.extras import Extras
from agent.view.page.page import newer_state, page

pytestmark = pytest.mark.slow
NIGHT = made_night(60, titles=HOSTILE)
KEPT = [one for one in NIGHT.attempts[1:] if one.status == "keep"]
PARENT = KEPT[0].parent or 0
EDIT = "@@ -1,2 +1,2 @@\n-A = 1\n+A = '<b>2</b>'\n B = 3"
CURVES = {("t", number): [(at / 20, 6 - at / 10) for at in range(1, 21)] for number in (PARENT, KEPT[0].number)}
EXTRAS = Extras({("t", KEPT[0].number): EDIT}, CURVES)
SIZES = [(390, 844), (1400, 900)]
LINES_OF_TEXT = """element => {
    const text = document.createRange();
    text.selectNodeContents(element);
    return text.getClientRects().length;
}"""
Page = Any  # of Playwright, which may be missing


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a night with hostile titles."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page([NIGHT], EXTRAS), encoding="utf-8")
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
        return list(self.page.locator(f"tr.row td:nth-child({at})").all_inner_texts())

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
    titles = opened.page.locator("section:has(figure.chart) h2").all_inner_texts()
    assert titles == [
        "Progress",
        "Which edit stands on which",
        "What a score costs",
        "Which dials were turned",
        "Hours and sources",
    ]
    assert figures.count() == 6
    for figure in figures.all():
        drawing = figure.locator("svg:visible")
        box = drawing.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 50
        assert drawing.get_attribute("aria-label")
        assert drawing.locator("path").count() > 1
    assert opened.page.locator("figure.chart svg:visible a").count() >= len(NIGHT.attempts)


def test_the_table_shows_every_attempt_by_pages(opened):
    assert opened.page.locator("#range").inner_text() == "1–25 of 60"
    seen = opened.column(1)
    for _ in range(2):
        opened.page.get_by_role("button", name="Next").click()
        seen += opened.column(1)
    assert [int(text) for text in seen] == list(range(60))
    assert opened.page.get_by_role("button", name="Next").is_disabled()


def test_the_table_sorts_by_a_column_both_ways(opened):
    button = opened.page.get_by_role("button", name="val_bpb")
    button.click()
    scores = [float(text) for text in opened.column(4)]
    assert scores == sorted(scores)
    assert opened.page.locator("th[aria-sort=ascending]").inner_text().startswith("val_bpb")
    button.press("Enter")
    scores = [float(text) for text in opened.column(4)]
    assert scores == sorted(scores, reverse=True)  # attempts without a score are on the last page
    opened.page.get_by_role("button", name="Gain").click()
    assert int(opened.column(1)[0]) == max(NIGHT.attempts, key=lambda one: one.gain_bpb or -1).number


def test_the_table_filters_by_status_source_and_words(opened):
    opened.page.get_by_text(f"kept {len(KEPT)}").click()
    assert [int(text) for text in opened.column(1)] == [one.number for one in KEPT]
    opened.page.get_by_label("Source", exact=True).select_option("search")
    assert [int(text) for text in opened.column(1)] == [one.number for one in KEPT if one.source == "search"]
    opened.page.get_by_text("all 60").click()
    opened.page.get_by_label("Source", exact=True).select_option("")
    opened.page.get_by_label("Search", exact=True).fill("EMOJI  🌙")
    assert opened.column(1) == ["6"]
    opened.page.get_by_label("Search", exact=True).fill("nothing has these words")
    assert opened.page.get_by_text("No attempt matches.").is_visible()


def test_a_row_opens_and_closes_by_a_click(opened):
    number = KEPT[0].number
    row = opened.page.locator(f"#attempt-{number}")
    if not row.count():
        opened.page.get_by_role("button", name="Next").click()
    row.locator("td").nth(1).click()
    detail = opened.page.locator(f"#detail-{number}")
    words = detail.inner_text()
    assert KEPT[0].hypothesis in words
    assert (KEPT[0].words or "") in words
    assert detail.locator(".diff .added").inner_text() == "+A = '<b>2</b>'"
    assert detail.locator(".diff .removed").inner_text() == "-A = 1"
    assert detail.get_by_role("img").get_attribute("aria-label") == (
        f"Training loss of attempt {number}, at last 4.000; of its parent, 4.000"
    )
    assert detail.locator("table tbody tr").count() == len(KEPT[0].runs)
    row.locator("td").nth(1).click()
    assert detail.count() == 0


def test_everything_is_reached_by_the_keyboard(opened):
    keyboard, focused = opened.page.keyboard, "document.activeElement"
    keyboard.press("Tab")
    assert opened.page.evaluate(f"{focused}.className") == "skip"
    opened.page.locator("#attempt-1 button").focus()
    keyboard.press("Enter")
    assert opened.page.locator("#attempt-1 button").get_attribute("aria-expanded") == "true"
    assert opened.page.locator("#detail-1").is_visible()
    keyboard.press("Space")
    assert opened.page.locator("#detail-1").count() == 0
    stops = opened.page.locator("figure.chart svg:visible a[tabindex='0']")
    assert stops.count() == opened.page.locator("figure.chart svg:visible:has(a)").count()  # one for each drawing
    stops.first.focus()
    first = opened.page.evaluate(f"{focused}.getAttribute('href')")
    keyboard.press("ArrowRight")
    assert (first, opened.page.evaluate(f"{focused}.getAttribute('href')")) == ("#attempt-0", "#attempt-1")
    assert opened.page.locator("#tip").inner_text().startswith("attempt ")
    keyboard.press("Enter")
    assert opened.page.locator("tr.detail").count() == 1


def test_all_that_can_be_used_has_a_name_for_screen_readers(opened):
    opened.page.locator("#attempt-3 button").click()
    for role in ("button", "link", "textbox", "searchbox", "combobox", "radio", "img", "columnheader", "region"):
        every = opened.page.get_by_role(role)
        named = opened.page.get_by_role(role, name=re.compile(r"\S"))
        assert named.count() == every.count(), role
    assert opened.page.get_by_role("group", name=re.compile(r"^Progress: the val_bpb of every attempt")).count() == 1
    headings = opened.page.get_by_role("heading", level=1)
    assert headings.count() == 1


def test_a_dot_of_a_chart_leads_to_its_row(opened):
    opened.page.get_by_label("Search", exact=True).fill("nothing has these words")
    opened.page.locator("figure.chart svg:visible a[href='#attempt-55']").first.click()
    assert opened.page.locator("#detail-55").is_visible()
    assert opened.page.url.endswith("#attempt-55")
    assert opened.page.locator("#attempt-55").bounding_box()["y"] < 900


def test_an_address_with_an_attempt_opens_its_row(browser, file):
    here = Opened(browser, file, "#attempt-42")
    assert here.page.locator("#detail-42").is_visible()
    here.context.close()


def test_hostile_titles_are_text(opened):
    titles = opened.page.locator("tr.row .title").all_text_contents()[1 : len(HOSTILE) + 1]
    assert [title[:500] for title in titles] == [title[:500] for title in HOSTILE]
    assert opened.page.locator("img, main script").count() == 0
    assert not opened.is_too_wide()


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
    assert here.page.locator("tr.row").count() == 25  # the page's own script does
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


def test_an_option_that_the_head_names_is_on_one_line_at_every_width(browser, tmp_path):
    night = replace(NIGHT, attempts=NIGHT.attempts[:1], incumbent=0, dawn=None, doubt="its runs have 2 steps")
    (tmp_path / "report.html").write_text(page([night], EXTRAS), encoding="utf-8")
    here = Opened(browser, tmp_path / "report.html", viewport={"width": 400, "height": 800})
    option = here.page.locator(".lead code", has_text="--budget-s")
    for width in range(320, 500, 10):
        here.page.set_viewport_size({"width": width, "height": 800})
        assert option.evaluate(LINES_OF_TEXT) == 1
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


def test_without_javascript_the_head_the_charts_and_the_first_rows_are_there(browser, file):
    here = Opened(browser, file, java_script_enabled=False)
    assert here.page.locator("h1").inner_text().startswith("59 ideas tried")
    assert here.page.locator("tbody tr").count() == 50
    assert here.page.locator("figure.chart svg:visible").count() >= 1
    assert not here.page.locator("#filters").is_visible()
    here.context.close()


def test_a_newer_state_is_shown_and_open_rows_stay_open(opened):
    opened.page.locator("#attempt-3 button").click()
    opened.page.evaluate("state => update(state)", newer_state([made_night(80)], Extras()))
    assert opened.page.locator("#range").inner_text() == "1–25 of 80"
    assert opened.page.locator("h1").inner_text().startswith("79 ideas tried")
    assert opened.page.locator("#detail-3").is_visible()
    assert opened.page.evaluate("document.activeElement.closest('tr').id") == "attempt-3"
    opened.page.locator("figure.chart svg:visible a[href='#attempt-75']").first.click()
    assert opened.page.locator("#detail-75").is_visible()


def test_a_newer_state_takes_the_focus_from_nothing(opened):
    focused = (
        "[document.activeElement.tagName, document.activeElement.value, document.activeElement.getAttribute('href')]"
    )
    for selector in (
        "[name=status][value=keep]",
        "#source",
        "#search",
        "figure.chart svg:visible a[href='#attempt-4']",
    ):
        opened.page.locator(selector).first.focus()
        before = opened.page.evaluate(focused)
        opened.page.evaluate("state => update(state)", newer_state([made_night(80)], Extras()))
        assert opened.page.evaluate(focused) == before


def printed_rows(pdf: bytes) -> int:
    """Count the rows of tables in a tagged PDF."""
    return len(re.findall(rb"/S\s*/TR\b", pdf))


def test_on_paper_there_are_all_rows_and_afterwards_the_page_is_as_it_was(opened):
    opened.page.get_by_role("button", name="Next").click()
    opened.page.locator("#attempt-30 button").focus()
    before = opened.page.evaluate("[scrollY, byId('rows').innerHTML]")
    pdf = opened.page.pdf(tagged=True)
    assert printed_rows(pdf) == 60 + 1  # and the head
    assert opened.page.evaluate("[scrollY, byId('rows').innerHTML]") == before
    assert opened.page.locator("#range").inner_text() == "26–50 of 60"
    assert opened.page.evaluate("document.activeElement.closest('tr').id") == "attempt-30"


def test_on_paper_filters_hold_and_are_told_and_open_rows_are_whole(opened):
    left_out = opened.page.locator("#left-out")
    opened.page.emulate_media(media="print")
    assert not left_out.is_visible()
    opened.page.emulate_media(media="screen")
    opened.page.get_by_text(f"kept {len(KEPT)}").click()
    number = KEPT[0].number
    opened.page.locator(f"#attempt-{number} button").click()
    runs = opened.page.locator(f"#detail-{number} .runs tr").count()
    assert not left_out.is_visible()
    assert printed_rows(opened.page.pdf(tagged=True)) == len(KEPT) + 1 + 1 + runs
    opened.page.emulate_media(media="print")
    assert left_out.inner_text() == f"{len(KEPT)} of 60 attempts, those that the filters chose."
    for part in (".diff", "p"):
        for one in opened.page.locator(f"#detail-{number} {part}").all():
            assert one.evaluate("one => one.scrollHeight <= one.clientHeight + 1")  # nothing is cut


def test_a_thousand_attempts_open_with_the_rows_of_one_screen_and_are_printed_whole(browser, tmp_path):
    file = tmp_path / "long.html"
    file.write_text(page([made_night(1000)], Extras()), encoding="utf-8")
    here = Opened(browser, file)
    assert here.page.locator("tr.row").count() == 25
    here.page.evaluate("window.addEventListener('beforeprint', () => { window.atPrint = byId('rows').rows.length; })")
    here.page.pdf()
    assert here.page.evaluate("window.atPrint") == 1000
    assert here.page.locator("tr.row").count() == 25
    assert here.complaints == []
    here.context.close()


def test_several_nights_show_the_attempts_of_the_chosen_one(browser, tmp_path):
    file = tmp_path / "two.html"
    nights = [made_night(20), replace(made_night(30, "u"), device="NVIDIA H200")]
    file.write_text(page(nights, Extras()), encoding="utf-8")
    here = Opened(browser, file, viewport={"width": 1400, "height": 900})
    assert here.page.get_by_text("all 20").is_visible()
    here.page.get_by_label("Night", exact=True).select_option("u")
    assert here.page.get_by_text("all 30").is_visible()
    assert here.page.locator("h2.claim:visible").inner_text().startswith("29 ideas tried")
    here.page.locator("figure.chart svg:visible a[href='#attempt-t-7']").first.click()
    assert here.page.locator("#detail-7").is_visible()
    assert here.page.get_by_label("Night", exact=True).input_value() == "t"
    assert here.complaints == []
    here.context.close()
