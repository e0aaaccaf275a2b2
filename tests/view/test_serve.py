"""The live page: a real server on loopback, and a night that grows while it is shown."""

import re
import signal
import socket
import subprocess

import pytest
from commands import refused, wait_until
from nights import Grounds, command, environment
from serving import PATIENCE_S, Client, GrowingNight, growing_night, make_place, points, served

from agent.experiment import Status, Terms
from agent.view.serve import Watched, listen


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    place = make_place(tmp_path_factory.mktemp("serve") / "user")
    with growing_night(place, "first") as night:
        night.add("baseline", 1.5, Status.KEEP)
        night.add('<script>alert(1)</script> & "quotes"', 1.4, Status.KEEP)
        yield night


@pytest.fixture(scope="module")
def client(night: GrowingNight):
    with served(night.place) as client:
        yield client


def test_titles_are_text_and_no_other_site_can_read_or_frame_the_page(client: Client):
    status, headers, body = client.ask("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<script>alert" not in body
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    for path in ("/", "/attempt/0/log", "/nothing"):
        headers = client.ask(path)[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"  # what other sites ask for, they cannot read
        assert not any(name.startswith("access-control") for name in headers)
    assert client.ask("/attempt/0/log")[1]["content-security-policy"].startswith("default-src 'none'")


def test_what_is_the_users_own_is_not_served(client: Client, night: GrowingNight):
    terms = Terms(agent="sh -c private", llm="openai:m@http://10.0.0.7/private", ray_address="private:6379")
    night.journal.record_facts(terms=terms, data="/home/private")
    night.add("the next one", 1.6, Status.DISCARD)
    wait_until(lambda: "the next one" in client.ask("/")[2], 180)  # which is not drawn at each change
    assert "private" not in client.ask("/")[2]


def test_a_run_is_followed_and_its_attempt_arrives_when_it_is_decided(client: Client, night: GrowingNight):
    with client.events() as events:
        before = events.shows("Asks for the next idea")
        number = night.begin("a <b>new</b> idea", "Because it may help.")
        end = night.train(number, 3, points(5.0, 4.0, 3.5), b"step 1\nstep 2 \x1b[2J\x00\xff\nstep <3>\n")
        log = "step 1\nstep 2 \\x1b[2J\\xff\nstep &lt;3&gt;"
        title = "a &lt;b&gt;new&lt;/b&gt; idea"
        event = events.shows(f"Attempt {number}: training, seed 3", title, "20%", "loss 3.500", log)
        assert "Because it may help." in event["panel"]
        assert "experiments left · " in event["panel"]
        end(1.3, Status.KEEP)
        assert events.shows("Asks for the next idea")["version"] > before["version"]


def test_it_listens_on_this_machine_alone_and_answers_what_reads(client: Client):
    with listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    for name in ("127.0.0.1", "localhost"):
        assert client.ask("/", host=f"{name}:{client.port}")[0] == 200
    for host in ("evil.example", f"evil.example:{client.port}", f"127.0.0.1.:{client.port}", ""):
        assert client.ask("/", host=host)[0] == 400, host
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert client.ask("/", method)[0] == 405, method


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/attempt/%2e%2e%2f%2e%2e/log", "/attempt/-1/log", "/attempt/999/log",
        "/attempt/%D9%A3/log", f"/attempt/{'9' * 5000}/log", "/attempt/0/journal.sqlite", "/attempt/0%00/log",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(client: Client, path: str):
    assert client.ask(path)[0] == 404


def test_a_log_that_a_script_made_a_link_is_not_followed(client: Client, night: GrowingNight, tmp_path):
    number = night.begin("leaves a link")
    night.train(number)(1.7, Status.DISCARD)
    (tmp_path / "secret").write_text("a secret")
    log = night.place.folder("first") / "runs" / f"{number:04d}" / "seed0" / "log.txt"
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    wait_until(lambda: client.ask(f"/attempt/{number}/log")[::2] == (404, "there is no such log here\n"))


def test_the_page_follows_the_newest_night_and_says_when_a_journal_is_gone(tmp_path):
    place = make_place(tmp_path / "user")
    with growing_night(place, "one") as night:
        night.add("baseline", 1.5, Status.KEEP)
    with served(place) as client, client.events() as events:
        assert events.shows("Night one is not running")["tag"] == "one"
        with growing_night(place, "two") as other:
            other.add("baseline", 1.5, Status.KEEP)
            events.until(lambda event: event["tag"] == "two")
            wait_until(lambda: 'data-tag="two"' in client.ask("/")[2])
        with served(place, follow=lambda: Watched(place, "two")) as named, named.events() as stream:
            stream.shows("Night two is not running")
            place.journal("two").unlink()
            stream.shows('role="alert"')
            assert named.ask("/")[0] == 200
        events.shows("Night one is not running")


def test_ctrl_c_ends_the_command_at_once_though_streams_are_open_and_misuse_is_one_sentence(tmp_path, night):
    grounds = Grounds(night.place.repo.root)
    process = subprocess.Popen(
        command("serve", "--port", "0"), cwd=grounds.root, env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    client = Client(int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1]))
    with client.events() as events, client.events():
        events.until(bool)
        assert f"port {client.port} cannot be had (" in refused(grounds.nightshift("serve", "--port", str(client.port)))
        with socket.create_connection(("127.0.0.1", client.port)) as stalled:
            stalled.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode() * 500)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
