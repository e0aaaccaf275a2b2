"""nightshift serve: the command as a separate process, its errors, and its end."""

import re
import signal
import socket
import subprocess

import pytest
from commands import nothing_yet, refused
from nights import Grounds, command, environment
from serving import Client, growing_night, make_place

from agent.experiment import Status


@pytest.fixture(scope="module")
def grounds(tmp_path_factory):
    place = make_place(tmp_path_factory.mktemp("serve") / "user")
    with growing_night(place, "first") as night:
        night.add("baseline", 1.5, Status.KEEP)
    return Grounds(place.repo.root)


def started(grounds: Grounds, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The process, and the URL that it printed."""
    process = subprocess.Popen(
        command("serve", "--port", "0", *arguments), cwd=grounds.root, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    return process, found[0]


def port_of(url: str) -> int:
    return int(re.search(r":(\d+)/", url)[1])


def test_ctrl_c_ends_it_at_once_though_streams_are_open_and_a_reader_stands_still(grounds: Grounds):
    process, url = started(grounds)
    client = Client(port_of(url))
    with client.events() as events, client.events(), socket.create_connection(("127.0.0.1", client.port)) as idle:
        events.until(bool)
        stalled = socket.create_connection(("127.0.0.1", client.port))
        stalled.sendall(f"GET /facts.json HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode() * 500)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        stalled.close()
        assert idle.recv(1) == b""
    assert (process.returncode, err) == (0, "")


def test_what_it_cannot_do_is_one_sentence(grounds: Grounds, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = refused(grounds.nightshift("serve", "--port", port))
    assert said.startswith(f"port {port} is in use by another program; take any free one with: ")
    assert 'Invalid value "70000" for --port' in refused(grounds.nightshift("serve", "--port", "70000"))
    assert "no night nowhere" in refused(grounds.nightshift("serve", "nowhere")).lower()
    empty = make_place(tmp_path / "empty")
    assert "no night has run here yet" in nothing_yet(Grounds(empty.repo.root).nightshift("serve"))
