"""The live page in a real browser, and readers that stand still: proofs that take long."""

import contextlib
import os
import socket
import time

import psutil
import pytest
from commands import wait_until
from serving import GrowingNight, growing_night, make_place, points, served

from agent.experiment import Status
from agent.view.serve.server import MOST_CONNECTIONS, SILENT_S, STALLED_S

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
        number = night.begin(HOSTILE, "Because <b>it</b> may help.")
        end = night.train(number, 0, points(5.0, 4.5, 4.0, 3.8), b"step 3 <b>loss</b> 3.8\n")
        shows(tab, "#live .state", f"Attempt {number} trains with seed 0")
        shows(tab, "#live .tried", f"#{number} {HOSTILE}")
        shows(tab, "#live .pace", "3.800")
        shows(tab, "#live pre", "step 3 <b>loss</b> 3.8")
        shows(tab, "#live .rest", "58 experiments left · 7 h 59 min left")
        assert tab.locator("#live progress").evaluate("bar => bar.value") == pytest.approx(0.3)
        assert tab.locator("#live svg path.mine").count() == 1
        assert tab.locator("#rows tr.row").count() == 2 or HOSTILE in tab.locator("#rows").inner_text()
        height = "document.getElementById('live').offsetHeight"
        before = tab.evaluate(height)
        end(1.2, Status.KEEP)
        shows(tab, "#rows", HOSTILE)
        shows(tab, "#live .state", "Asks for the next idea")
        assert tab.evaluate(height) >= before  # or the page below would jump
        shows(tab, "h1", "1.2")
        tab.locator(f"#attempt-{number} button").click()
        tab.locator(f"#detail-{number} summary", has_text="End of the log").click()
        shows(tab, f"#detail-{number} .more pre", "step 3 <b>loss</b> 3.8")
        assert tab.evaluate("window.isTheSame")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert {address.split("/")[2] for address in tab.asked if address.startswith("http")} == {
            f"127.0.0.1:{client.port}"
        }
    assert tab.wrong == [], tab.wrong


def test_the_page_goes_over_to_a_night_that_begins_and_says_so(tmp_path, tab):
    place = make_place(tmp_path / "user")
    with growing_night(place, "one") as night:
        night.add("baseline", 1.5, Status.KEEP)
    with served(place, "a token of the user's") as client:
        tab.goto(f"http://127.0.0.1:{client.port}/?token=a+token+of+the+user's")
        shows(tab, "#live .state", "Night one is not running")
        assert "token" not in tab.url
        with growing_night(place, "two") as other:
            other.add("another baseline", 1.5, Status.KEEP)
            shows(tab, "#live .notice", "Night two has begun")
            shows(tab, "#rows", "another baseline")
        shows(tab, "#live .notice", "Night two has ended")
    shows(tab, "#live .notice", "does not answer")


def test_a_reader_that_stands_still_is_dropped_and_others_are_served_meanwhile(night: GrowingNight):
    night.begin("of many words", "word " * 200_000)
    with served(night.place) as client, socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", client.port))
        request = f"GET /facts.json HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode()
        stalled.setblocking(False)
        stalled.send(request * 30)
        wait_until(lambda: is_connected(stalled.getsockname()[1], client.port))
        began_s = time.monotonic()
        while is_connected(stalled.getsockname()[1], client.port):
            assert client.ask("/facts.json")[0] == 200
            assert time.monotonic() < began_s + 3 * STALLED_S
            time.sleep(0.5)
        assert time.monotonic() > began_s + STALLED_S / 2


def is_connected(port: int, server: int) -> bool:
    """Does the server keep its end of the connection from this port?"""
    ours = psutil.Process(os.getpid()).net_connections("tcp")
    return any(one.laddr.port == server and one.raddr and one.raddr.port == port for one in ours)


def test_too_many_connections_are_refused_and_silent_ones_are_closed(night: GrowingNight):
    with served(night.place) as client, contextlib.ExitStack() as opened:
        for _ in range(MOST_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", client.port)))
        wait_until(lambda: client.ask("/facts.json")[0] == 503)
        wait_until(lambda: client.ask("/facts.json")[0] == 200, 4 * SILENT_S)
