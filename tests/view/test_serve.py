"""The live page: a real server on loopback, and a night that grows while it is shown."""

import re
import signal
import socket
import subprocess

import pytest
from commands import refused
from nights import Grounds, command, environment
from serving import PATIENCE_S, Client, GrowingNight, growing_night, make_place, points, served

from agent.experiment import Options, Status


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
    assert 'connect-src &#39;self&#39;"' in body  # the page asks for itself alone
    for path, method in (("/", "GET"), ("/nothing", "GET"), ("/", "POST")):
        headers = client.ask(path, method)[1]
        assert headers["content-security-policy"] == "frame-ancestors 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"  # what other sites ask for, they cannot read
        assert not any(name.startswith("access-control") for name in headers)


def test_what_is_the_users_own_is_not_served(client: Client, night: GrowingNight):
    options = Options(agent="sh -c private", llm="openai:m@http://10.0.0.7/private", ray_address="private:6379")
    night.journal.record_facts(options=options, data="/home/private")
    night.add("the next one", 1.6, Status.DISCARD)
    client.shows("the next one")
    assert "private" not in client.ask("/")[2]


def test_a_run_is_followed_and_its_attempt_arrives_when_it_is_decided(client: Client, night: GrowingNight):
    client.shows("Asks for the next idea", " experiments left · ")
    number = night.begin("a <b>new</b> idea", "Because it may help.")
    end = night.train(number, 3, points(5.0, 4.0, 3.5), b"step 1\nstep 2 \x1b[2J\x00\xff\nstep <3>\n")
    log = "step 1\nstep 2 \\x1b[2J\\xff\nstep &lt;3&gt;"
    title = "a &lt;b&gt;new&lt;/b&gt; idea"
    client.shows(f"Attempt {number}: training, seed 3", title, "Because it may help.", "20%", "loss 3.500", log)
    assert "1.3000" not in client.ask("/")[2]
    end(1.3, Status.KEEP)
    client.shows("Asks for the next idea", "1.3000")


def test_it_listens_on_this_machine_alone_and_answers_what_reads(client: Client):
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", client.port)):
        pass
    for name in ("127.0.0.1", "localhost"):
        assert client.ask("/", host=f"{name}:{client.port}")[0] == 200
    status, headers, body = client.ask("/", "HEAD")
    assert (status, int(headers["content-length"]) > 0, body) == (200, True, "")
    for host in ("evil.example", f"evil.example:{client.port}", f"127.0.0.1.:{client.port}", ""):
        assert client.ask("/", host=host)[0] == 400, host
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert client.ask("/", method)[0] == 501, method


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/journal.sqlite", "/attempt/0/log", "/%2e%2e", "/?/../x", "/ /", "x", "*",
        "http://evil.example/", f"/{'9' * 5000}", "/%00",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(client: Client, path: str):
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = connection.makefile("rb").read()
    assert re.match(rb"HTTP/1.0 40[04] ", answer), answer
    assert len(answer) < 1000


def test_a_log_that_a_script_made_a_link_is_not_followed(client: Client, night: GrowingNight, tmp_path):
    number = night.begin("leaves a link")
    end = night.train(number, log=b"a first line")
    client.shows("leaves a link", "a first line")
    (tmp_path / "secret").write_text("a secret")
    log = night.place.folder("first") / "runs" / f"{number:04d}" / "seed0" / "log.txt"
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    night.begin("a later attempt")
    client.shows("leaves a link", "a later attempt")
    assert not any(words in client.ask("/")[2] for words in ("a secret", "a first line"))
    end(1.7, Status.DISCARD)


def test_the_page_follows_the_newest_night_and_says_when_a_journal_is_gone(tmp_path):
    place = make_place(tmp_path / "user")
    with growing_night(place, "one") as night:
        night.add("baseline", 1.5, Status.KEEP)
    with served(place) as client:
        client.shows("Night one is not running")
        with growing_night(place, "two") as other:
            other.add("baseline", 1.5, Status.KEEP)
            client.shows('data-tag="two"')
        with served(place, "two") as named:
            named.shows("Night two is not running")
            place.journal("two").unlink()
            named.shows("no night two is here; known nights: one\n")
            assert named.ask("/")[0] == 503
        client.shows("Night one is not running")


def test_ctrl_c_ends_the_command_though_readers_are_connected_and_misuse_is_one_sentence(night):
    grounds = Grounds(night.place.repo.root)
    process = subprocess.Popen(
        command("serve", "--port", "0"), cwd=grounds.root, env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    client = Client(int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1]))
    assert f"port {client.port} cannot be had (" in refused(grounds.nightshift("serve", "--port", str(client.port)))
    with (
        socket.create_connection(("127.0.0.1", client.port)),  # which says nothing
        socket.create_connection(("127.0.0.1", client.port)) as gone,
        socket.create_connection(("127.0.0.1", client.port)) as stalled,
    ):
        gone.sendall(b"GET /")
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # its end is a reset
        gone.close()
        stalled.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode() * 500)
        client.shows("first")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
