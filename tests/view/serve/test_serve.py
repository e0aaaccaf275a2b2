"""The live page: a real server on loopback, and a night that grows while it is shown."""

import asyncio
import contextlib
import json
import re
import socket
import time
from itertools import pairwise

import pytest
from commands import wait_until
from nights import PROJECT, git
from serving import PERIOD_S, Client, GrowingNight, growing_night, make_place, points, served

from agent.cli.report import Newest
from agent.experiment import Doing, Status
from agent.records.place import Place
from agent.view.facts.json import as_json
from agent.view.facts.read import night_facts
from agent.view.serve import server
from agent.view.serve.address import Address, token_for
from agent.view.serve.feed import Feed, Watched, stamp_of
from agent.view.serve.rendered import Rendered

HOSTILE = '<script>alert(1)</script> & "quotes"'


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    place = make_place(tmp_path_factory.mktemp("serve") / "user")
    with growing_night(place, "first") as night:
        night.add("baseline", 1.5, Status.KEEP)
        night.add(HOSTILE, 1.4, Status.KEEP)
        yield night


@pytest.fixture(scope="module")
def client(night: GrowingNight):
    with served(night.place) as client:
        yield client


def test_the_page_shows_the_attempts_and_their_titles_as_text(client: Client):
    status, headers, body = client.ask("/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "<script>alert" not in body
    assert "baseline" in body


def test_the_page_may_load_nothing_from_elsewhere_and_run_only_its_own_scripts(client: Client):
    _, headers, body = client.ask("/")
    policy = headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert all(word.startswith("'sha256-") for name in ("script-src", "style-src") for word in rules[name].split())
    assert body.count("http-equiv") == 1
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert not any(name.startswith("access-control") for name in headers)


def test_the_facts_of_the_night_are_served_as_json(client: Client, night: GrowingNight):
    _, headers, body = client.ask("/facts.json")
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == json.loads(json.dumps(as_json(night_facts(night.place, "first"))))


def test_a_run_is_followed_and_its_attempt_arrives_when_it_is_decided(client: Client, night: GrowingNight):
    with client.events() as events:
        before = events.until("night", lambda told: told["running"])
        number = night.begin("a new idea", "Because it may help.")
        end = night.train(number, 3, points(5.0, 4.0, 3.5), b"step 1\nstep 2 \x1b[2J\x00\xff\nstep 3\n")
        now = events.until("now", lambda told: told and told["attempt"] == number and told["work"] == "training")
        assert (now["title"], now["why"], now["seed"]) == ("a new idea", "Because it may help.", 3)
        assert (now["fraction"], now["loss"], now["tokens_s"]) == (0.2, 3.5, 1234.5)
        assert events.until("curve", bool)["points"] == [[0.0, 5.0], [0.1, 4.0], [0.2, 3.5]]
        assert events.until("log", bool) == "step 1\nstep 2 \\x1b[2J\\xff\nstep 3"
        end(1.3, Status.KEEP)
        after = events.until(
            "night", lambda told: told["attempts"] == number + 1 and told["version"] != before["version"]
        )
        asking = events.until("now", lambda told: told["work"] == "asking")
        assert (asking["attempt"], after["experiments_left"]) == (number + 1, 60 - number)
    state = json.loads(client.ask("/state.json")[2])
    assert state["version"] == after["version"]
    assert "a new idea" in json.dumps(state["state"])


def test_several_workers_are_followed_and_the_log_of_each_can_be_read(client: Client, night: GrowingNight):
    with client.events() as events:
        events.until("night", lambda told: told["running"])
        ends = []
        for at in (10, 9):
            number = night.begin(f"an idea of gpu {at}")
            ends.append(night.train(number, at, points(5.0, 4.0), f"log of gpu {at}\n".encode(), f"gpu {at}"))
        told = events.until("workers", lambda told: told and len(told["busy"]) == 2)
        assert told["count"] == 2
        assert [(one["worker"], one["attempt"], one["title"], one["loss"], one["work"]) for one in told["busy"]] == [
            ("gpu 9", number, "an idea of gpu 9", 4.0, "training"),
            ("gpu 10", number - 1, "an idea of gpu 10", 4.0, "training"),
        ]
        assert client.ask(f"/attempt/{number - 1}/log")[2] == "log of gpu 10"
        for end in ends:
            end(1.6, Status.DISCARD)
        events.until("workers", lambda told: told is None)


def test_every_commit_to_a_journal_is_noticed(night: GrowingNight):
    watched = Watched(night.place, "first", is_running=True)
    stamps = [stamp_of(watched)]
    for at in range(200):
        if at % 10 == 0:  # the next commit overwrites the beginning of the -wal file, whose size stays
            night.journal.query("PRAGMA wal_checkpoint(RESTART)")
        night.journal.record_facts(terms=f'{{"experiments": {at}}}')
        stamps.append(stamp_of(watched))
    assert all(before != after for before, after in pairwise(stamps))


def test_an_attempt_gives_its_log_its_edit_and_its_curve(client: Client, night: GrowingNight):
    number = night.begin("of three files")
    night.train(number, 5, points(4.0, 3.0), b"all went well\n")(1.6, Status.DISCARD)
    with client.events() as events:
        events.until("night", lambda told: told["attempts"] == number + 1)
    assert client.ask(f"/attempt/{number}/log")[2] == "all went well"
    assert client.ask(f"/attempt/{number}/log?seed=5&tag=first")[0] == 200
    assert json.loads(client.ask(f"/attempt/{number}/curve")[2])["points"] == [[0.0, 4.0], [0.1, 3.0]]
    assert re.search(r"^\+SHARPNESS = ", client.ask(f"/attempt/{number}/diff")[2], re.MULTILINE)
    assert client.ask("/attempt/0/diff")[0] == 404


def test_a_host_that_is_not_this_server_is_refused(client: Client):
    for name in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert client.ask("/", host=f"{name}:{client.port}")[0] == 200
    for host in (
        "evil.example",
        f"evil.example:{client.port}",
        "127.0.0.1",
        "localhost:1",
        f"127.0.0.1.:{client.port}",
        "",
    ):
        assert client.ask("/", host=host)[0] == 421, host


def test_other_sites_may_link_to_the_page_and_ask_for_nothing_else(client: Client):
    assert client.ask("/", sec_fetch_site="cross-site")[0] == 200
    assert client.ask("/facts.json", sec_fetch_site="cross-site")[0] == 403
    assert client.ask("/facts.json", sec_fetch_site="same-origin")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_reading_is_answered(client: Client, method: str):
    status, headers, _ = client.ask("/", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_half_a_request_after_a_whole_one_holds_no_connection(client: Client, monkeypatch):
    monkeypatch.setattr(server, "SILENT_S", 0.1)
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall(f"HEAD / HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(4096) == b""


def test_head_has_the_headers_and_no_body(client: Client):
    for path in ("/", "/facts.json", "/events", "/attempt/0/log"):
        assert client.ask(path, "HEAD")[2] == ""


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/attempt/../../etc/passwd", "/attempt/%2e%2e%2f%2e%2e/log", "/attempt/-1/log",
        "/attempt/0000000000/log", "/attempt/999/log", "/attempt/%D9%A3/log",
        f"/attempt/{'9' * 5000}/log", "/attempt/0/log?seed=../../../../etc/passwd", "/attempt/0/log?seed=99",
        "/attempt/0/log?tag=../first", "/attempt/0/journal.sqlite", "/attempt/0%00/log", "//etc/passwd", "/live.js",
        "/journal.sqlite", "/attempt/0/log/..", "/attempt/1e0/diff",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(client: Client, path: str):
    assert client.ask(path)[0] == 404


def test_a_log_that_a_script_made_a_link_is_not_followed(client: Client, night: GrowingNight, tmp_path):
    number = night.begin("leaves a link")
    night.train(number)(1.7, Status.DISCARD)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    log = night.place.folder("first") / "runs" / f"{number:04d}" / "seed0" / "log.txt"
    log.unlink()
    log.symlink_to(secret)
    with client.events() as events:
        events.until("night", lambda told: told["attempts"] == number + 1)
    assert client.ask(f"/attempt/{number}/log")[::2] == (404, f"the log of attempt {number} with seed 0 is gone\n")


def test_many_clients_share_one_reading_and_without_clients_there_is_none(night: GrowingNight):
    readings: list[float] = []

    def follow() -> Watched:
        readings.append(time.monotonic())
        return Watched(night.place, "first", is_running=True)

    with served(night.place, follow=follow) as client:
        with contextlib.ExitStack() as opened:
            streams = [opened.enter_context(client.events()) for _ in range(12)]
            for events in streams:
                events.until("night", bool)
            wait_until(lambda: len(readings) > 10)
        wait_until(lambda: time.monotonic() > readings[-1] + 10 * PERIOD_S)
    assert all(later - earlier >= PERIOD_S for earlier, later in pairwise(readings[1:]))


def test_what_is_made_of_a_night_is_made_once_for_all_who_ask(night: GrowingNight):
    made: list[str] = []

    async def ask() -> None:
        feed = Feed(lambda: Watched(night.place, "first", is_running=True))
        rendered = Rendered(feed, lambda snapshot: made.append(snapshot.version))
        await asyncio.gather(*(rendered.latest() for _ in range(5)))

    asyncio.run(ask())
    assert len(made) == 1


@pytest.mark.parametrize(
    ("host", "url", "named"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/", "localhost"),
        ("::1", "http://[::1]:80/", "[::1]:80"),
        ("127.0.0.5", "http://127.0.0.5:80/", "127.0.0.5:80"),
        ("localhost", "http://localhost:80/", "127.0.0.1"),
    ],
)
def test_an_address_of_this_machine_is_answered_under_its_names(host: str, url: str, named: str):
    address = Address(host, 80, token_for(host, None))
    assert address.url == url
    assert address.hosts is not None
    assert named in address.hosts
    assert "evil.example" not in address.hosts


def test_an_address_for_others_has_a_fresh_token_in_its_url():
    tokens = {token_for("0.0.0.0", None) for _ in range(2)}
    assert len(tokens) == 2
    assert Address("192.0.2.7", 8711, "a/token&more-of-it").url == "http://192.0.2.7:8711/?token=a%2Ftoken%26more-of-it"


def test_a_token_opens_the_page_once_and_a_cookie_keeps_it_open(night: GrowingNight):
    token = "t" * 20
    with served(night.place, token=token) as client:
        assert client.ask("/")[0] == 401
        assert client.ask("/facts.json?token=" + "x" * 20)[0] == 401
        assert client.ask("/facts.json?token=%ff%fe")[0] == 401
        status, headers, body = client.ask(f"/?token={token}")
        assert (status, 'content="0; url=/"' in body) == (200, True)
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].split(";")[0]
        assert client.ask("/events", "HEAD", cookie=cookie)[0] == 200
        assert client.ask("/", cookie=cookie + "x")[0] == 401
        assert client.ask("/", cookie=cookie)[0] == 200
        assert client.ask(f"/facts.json?token={token}")[0] == 200


def test_the_page_follows_the_newest_night_and_says_when_a_journal_is_gone(tmp_path):
    place = make_place(tmp_path / "user")
    with growing_night(place, "one") as night:
        night.add("baseline", 1.5, Status.KEEP)
    with served(place) as client, client.events() as events:
        assert events.until("night", bool)["tag"] == "one"
        with growing_night(place, "two") as other:
            other.add("baseline", 1.5, Status.KEEP)
            assert events.until("night", lambda told: told["tag"] == "two")["running"]
            assert '{"tag": "two"' in client.ask("/")[2]
        assert not events.until("night", lambda told: not told["running"])["notice"]
        place.journal("two").unlink()
        told = events.until("night", lambda told: told["notice"])
        assert told["attempts"] == 1
        assert client.ask("/")[0] == 200


def test_a_night_in_another_working_tree_of_the_repository_is_found(tmp_path):
    here = make_place(tmp_path / "user")
    git(here.repo.root, "worktree", "add", "-q", str(tmp_path / "other"))
    there = Place.of(tmp_path / "other" / "train_mlx.py")
    newest = Newest(here, here.repo.common_dir, None)
    with growing_night(here, "one") as night:
        night.add("baseline", 1.5, Status.KEEP)
    with growing_night(there, "two"):
        assert newest.watched().place.journal("two") == there.journal("two")
        assert Newest(here, here.repo.common_dir, "one").watched() == Watched(here, "one", is_running=False)
    assert newest.watched() == Watched(here, "one", is_running=False)


def test_the_page_has_words_for_all_that_a_worker_may_do():
    script = (PROJECT / "agent" / "view" / "serve" / "live.js").read_text()
    words = script.partition("const DOING = {")[2].partition("};")[0]
    assert [doing for doing in Doing if f"{doing}: " not in words and f'"{doing}": ' not in words] == []
