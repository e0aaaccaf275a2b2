"""The profile for macOS, parsed as Seatbelt does, allows the listed operations, and no path can add to them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.sandbox.box import FRAMEWORKS, SANDBOX_EXEC, profile

READ, WRITE = Path("/opt/python"), Path("/runs/0001")


class Text(str):
    """Mark a quoted string, as opposed to a symbol."""


def parse(text: str) -> list[list[object]]:
    """Parse a profile into nested lists; fail if quotes or parentheses do not match."""
    token = re.compile(r'\s+|;[^\n]*|([()])|"((?:[^"\\]|\\.)*)"|([^\s()";\\]+)', re.DOTALL)
    stack: list[list[object]] = [[]]
    at = 0
    while at < len(text):
        match = token.match(text, at)
        assert match, f"no token at {text[at : at + 40]!r}"
        at = match.end()
        if match[1] == "(":
            stack.append([])
        elif match[1] == ")":
            closed = stack.pop()
            stack[-1].append(closed)
        elif match[2] is not None:
            stack[-1].append(Text(re.sub(r"\\(.)", r"\1", match[2], flags=re.DOTALL)))
        elif match[3]:
            stack[-1].append(match[3])
    assert len(stack) == 1, "a parenthesis stays open"
    return stack[0]  # type: ignore[return-value]


def allowed(rules: list[list[object]], operation: str) -> list[tuple[str, str]]:
    """Return the filters (kind and value) that allow an operation."""
    filters = [rule[2:] for rule in rules if rule[:2] == ["allow", operation]]
    return [(str(kind), str(value)) for group in filters for kind, value in group]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def rules() -> list[list[object]]:
    return parse(profile([READ], WRITE))


def test_what_is_not_allowed_is_denied(rules):
    assert rules[:2] == [["version", "1"], ["deny", "default"]]
    assert ["deny", "network*"] in rules
    assert ["deny", "process-fork"] in rules


def test_it_writes_in_its_own_folder_alone(rules):
    assert allowed(rules, "file-write*") == [("subpath", str(WRITE))]
    writing = {str(rule[1]) for rule in rules if rule[0] == "allow" and "write" in str(rule[1])}
    assert writing == {"file-write*", "file-write-data"}
    assert allowed(rules, "file-write-data") == [("literal", "/dev/null")]


def test_it_reads_the_system_and_what_it_is_given(rules):
    places = {value for kind, value in allowed(rules, "file-read*") if kind == "subpath"}
    assert places == {*FRAMEWORKS, str(READ), str(WRITE)}
    files = {value for kind, value in allowed(rules, "file-read*") if kind == "literal"}
    assert files == {"/", "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}


def test_no_users_files_come_with_the_system(rules):
    for place in FRAMEWORKS:
        assert not any(Path(place).is_relative_to(own) for own in ("/Users", "/Volumes", "/private/tmp", "/opt"))
        assert not Path("/System/Volumes/Data/Users").is_relative_to(place)
    assert parse(profile([Path("/System")], WRITE))[-1] == [
        "deny", "file-read*", "file-write*", ["subpath", "/System/Volumes/Data"],
    ]  # fmt: skip


def test_it_becomes_only_programs_that_it_could_not_have_written(rules):
    assert allowed(rules, "process-exec*") == [("subpath", str(READ))]
    assert ("subpath", str(WRITE)) not in allowed(rules, "file-map-executable")


@pytest.mark.parametrize(
    "name",
    [
        'ends")) (allow default) (allow file-read* (subpath "/',
        'back\\" and quote',
        "ends with \\",
        "; comment (\nin lines",
        "späte Nächte 漢字",
    ],
)
def test_no_name_of_a_folder_changes_the_rules(tmp_path, name, rules):
    folder = tmp_path / name
    hostile = parse(profile([READ], folder))
    assert ("subpath", str(folder)) in allowed(hostile, "file-write*")
    assert [rule[:2] for rule in hostile] == [rule[:2] for rule in rules]


@pytest.mark.skipif(sys.platform != "darwin", reason="Seatbelt is part of macOS")
def test_mlx_trains_inside_and_nothing_else_works(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "secret"
    inside.mkdir()
    outside.write_text("key")
    text = profile([Path(sys.prefix), Path(sys.base_prefix)], inside)
    boxed = [SANDBOX_EXEC, "-p", text, sys.executable, "-c"]
    code = "import mlx.core as mx; print(mx.sum(mx.ones((8, 8)) @ mx.ones((8, 8))).item())"
    done = subprocess.run([*boxed, code], cwd=inside, capture_output=True, text=True)
    assert done.stdout == "512.0\n", done.stderr
    for deed in (f"open({str(outside)!r})", "import socket; socket.create_server(('', 0))", "import os; os.fork()"):
        done = subprocess.run([*boxed, deed], cwd=inside, capture_output=True, text=True)
        assert "PermissionError" in done.stderr
