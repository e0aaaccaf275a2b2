"""The live page in a real browser."""

import pytest
from serving import GrowingNight, growing_night, make_place, points, served

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


def test_the_page_shows_a_run_and_then_its_attempt_without_being_loaded_again(night: GrowingNight, tab):
    with served(night.place) as client:
        tab.goto(f"http://127.0.0.1:{client.port}/")
        shows(tab, "#live .state", "Asks for the next idea")
        tab.evaluate("window.isTheSame = true")
        number = night.begin(HOSTILE, f"Because {HOSTILE} may help.")
        end = night.train(number, 0, points(5.0, 4.5, 4.0, 3.8), f"step 3 {HOSTILE} 3.8\n".encode())
        shows(tab, "#live .state", f"Attempt {number}: training, seed 0")
        shows(tab, "#live .tried", f"#{number} {HOSTILE}")
        shows(tab, "#live .pace", "loss 3.800")
        shows(tab, "#live pre", f"step 3 {HOSTILE} 3.8")
        shows(tab, "#live .rest", "58 experiments left · 8 h 00 min left")
        assert tab.locator("#live progress").evaluate("bar => bar.value") == pytest.approx(0.3)
        assert tab.locator("#live svg polyline.mine").count() == 1
        height = "document.getElementById('live').offsetHeight"
        before = tab.evaluate(height)
        end(1.2, Status.KEEP)
        shows(tab, "#rows .title", HOSTILE)
        shows(tab, "#live .state", "Asks for the next idea")
        assert tab.evaluate(height) >= before  # or the page below would jump
        shows(tab, "h1", "1.2")
        tab.locator(f"#attempt-{number} > summary").click()
        tab.locator(f"#attempt-{number} .more summary").click()
        shows(tab, f"#attempt-{number} .more pre", f"step 3 {HOSTILE} 3.8")
        assert tab.evaluate("window.isTheSame")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert {address.split("/")[2] for address in tab.asked if address.startswith("http")} == {
            f"127.0.0.1:{client.port}"
        }
    assert tab.wrong == [], tab.wrong
