"""The profile for macOS, parsed as Seatbelt does, allows the listed operations, and no path can add to them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.sandbox.sandboxes import FRAMEWORKS, SANDBOX_EXEC, profile

READ, WRITE = Path("/opt/python"), Path("/runs/0001")
TOKEN = re.compile(r'\s+|;[^\n]*|(?P<word>[()]|"(?:[^"\\]|\\.)*"|[^\s()";\\]+)', re.DOTALL)
Rule = list["str | Rule"]


def parse(text: str) -> list[Rule]:
    """Parse a profile into nested lists; fail if quotes or parentheses do not match."""
    stack: list[Rule] = [[]]
    assert TOKEN.sub("", text) == "", "it has parts that are no tokens"
    for word in filter(None, (match["word"] for match in TOKEN.finditer(text))):
        if word == "(":
            stack.append([])
        elif word == ")":
            closed = stack.pop()
            stack[-1].append(closed)
        else:
            stack[-1].append(re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL) if word[0] == '"' else word)
    assert len(stack) == 1, "a parenthesis stays open"
    return stack[0]  # type: ignore[return-value]


def allowed(rules: list[Rule], operation: str) -> set[tuple[str, ...]]:
    """Return the filters (kind and value) that allow an operation."""
    return {tuple(word) for rule in rules if rule[:2] == ["allow", operation] for word in rule[2:]}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return parse(profile([READ], WRITE))


def test_what_is_not_allowed_is_denied(rules):
    assert rules[:2] == [["version", "1"], ["deny", "default"]]
    assert ["deny", "network*"] in rules
    assert ["deny", "process-fork"] in rules


def test_it_writes_in_its_own_folder_and_becomes_only_programs_that_it_could_not_have_written(rules):
    writing = {str(rule[1]) for rule in rules if rule[0] == "allow" and "write" in str(rule[1])}
    assert writing == {"file-write*", "file-write-data"}
    assert allowed(rules, "file-write*") == {("subpath", str(WRITE))}
    assert allowed(rules, "file-write-data") == {("literal", "/dev/null")}
    assert allowed(rules, "process-exec*") == {("subpath", str(READ))}
    assert ("subpath", str(WRITE)) not in allowed(rules, "file-map-executable")


def test_it_reads_the_system_without_users_files_and_what_it_is_given(rules):
    places = {value for kind, value in allowed(rules, "file-read*") if kind == "subpath"}
    assert places == {*FRAMEWORKS, str(READ), str(WRITE)}
    for place in FRAMEWORKS:
        assert not any(Path(place).is_relative_to(own) for own in ("/Users", "/Volumes", "/private/tmp", "/opt"))
    hidden = ["subpath", "/System/Volumes/Data"]
    assert parse(profile([Path("/System")], WRITE))[-1] == ["deny", "file-read*", "file-write*", hidden]


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
    sandboxed = [SANDBOX_EXEC, "-p", text, sys.executable, "-c"]
    code = "import mlx.core as mx; print(mx.sum(mx.ones((8, 8)) @ mx.ones((8, 8))).item())"
    done = subprocess.run([*sandboxed, code], cwd=inside, capture_output=True, text=True)
    assert done.stdout == "512.0\n", done.stderr
    for deed in (f"open({str(outside)!r})", "import socket; socket.create_server(('', 0))", "import os; os.fork()"):
        done = subprocess.run([*sandboxed, deed], cwd=inside, capture_output=True, text=True)
        assert "PermissionError" in done.stderr
