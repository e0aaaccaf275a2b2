"""The live page in a real browser."""

import pytest
from serving import AGAIN_S, GrowingNight, growing_night, make_place, points, served

from agent.cli.report import drawn, night_now
from agent.experiment import Status

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)> </script><script>alert(2)</script>"


@pytest.fixture
def night(tmp_path):
    place = make_place(tmp_path / "user")
    with growing_night(place, "first") as night:
        night.add("baseline", 1.5, Status.KEEP)
        night.add("a first edit", 1.4, Status.KEEP)
        yield night


@pytest.fixture
def tab(browser):
    """A tab that notes what went wrong in it, and every address that it asked for."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.wrong, page.asked = [], []
    page.on("console", lambda said: page.wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("dialog", lambda shown: (page.wrong.append(shown.message), shown.dismiss()))
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    page.close()


def shows(tab, selector: str, text: str) -> None:
    """Wait until an element shows this text."""
    tab.locator(selector, has_text=text).first.wait_for(state="attached", timeout=30_000)


def test_the_page_shows_a_run_and_then_its_attempt_by_itself(night: GrowingNight, tab):
    with served(night.place) as client:
        tab.goto(f"http://127.0.0.1:{client.port}/")
        shows(tab, "#live .state", "Asks for the next idea")
        number = night.begin(HOSTILE, f"Because {HOSTILE} may help.")
        end = night.train(number, 0, points(5.0, 4.5, 4.0, 3.8), f"step 3 {HOSTILE} 3.8\n".encode())
        shows(tab, "#live .state", f"Attempt {number}: training, seed 0")
        shows(tab, "#live .tried", f"#{number} {HOSTILE}")
        shows(tab, "#live .pace", "loss 3.800")
        shows(tab, "#live pre", f"step 3 {HOSTILE} 3.8")
        shows(tab, "#live .rest", "58 experiments left · 8 h 00 min left · at ")
        assert tab.locator("#live progress").evaluate("bar => bar.value") == pytest.approx(0.3)
        assert tab.locator("#live svg polyline.mine").count() == 1
        end(1.2, Status.KEEP)
        shows(tab, "#rows .title", HOSTILE)
        shows(tab, "#live .state", "Asks for the next idea")
        shows(tab, "h1", "1.2")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert {address.split("/")[2] for address in tab.asked if address.startswith("http")} == {
            f"127.0.0.1:{client.port}"
        }
        assert tab.wrong == [], tab.wrong
        tab.reload()
        tab.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")  # which the page waits for
    tab.evaluate("getSelection().empty()")
    shows(tab, "#notice", "The server does not answer; this page tries again.")
    assert tab.locator("#rows .title").count() == number + 1


@pytest.mark.parametrize("is_served", [True, False])
def test_a_newer_page_keeps_what_its_reader_has_opened_chosen_and_sorted(night: GrowingNight, tab, tmp_path, is_served):
    with served(night.place) as client:
        address, file = f"http://127.0.0.1:{client.port}/", tmp_path / "report.html"

        def write() -> None:
            file.write_text(drawn(*night_now(night.place, None), AGAIN_S), encoding="utf-8")

        write()
        tab.set_viewport_size({"width": 1200, "height": 400})
        tab.goto((address if is_served else file.as_uri()) + "#attempt-1")
        for name in ("Change", "Change"):
            tab.get_by_role("button", name=name).click()
        tab.get_by_text("kept 1").click()
        tab.locator("#search").fill("first edit")
        tab.locator("#search").blur()
        tab.evaluate("scrollTo(0, 300)")
        tab.evaluate("document.body.dataset.old = 1")
        night.add("a later edit", 1.3, Status.KEEP)
        write()
        shows(tab, "#rows .title", "a later edit")
        assert not tab.evaluate("document.body.dataset.old")
        assert [row.get_attribute("id") for row in tab.locator(".row[open]").all()] == ["attempt-1"]
        assert tab.locator(".row:visible").count() == 1
        assert tab.locator("#heads [data-sorted=down]").inner_text() == "Change"
        assert (tab.locator("#search").input_value(), tab.evaluate("scrollY")) == ("first edit", 300)
        tab.locator("#search").focus()
        tab.evaluate("document.body.dataset.old = 1")
        tab.locator("body:not([data-old])").wait_for()
        assert tab.evaluate("document.activeElement.id") == "search"
        assert tab.wrong == [], tab.wrong
