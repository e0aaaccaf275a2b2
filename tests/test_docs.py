"""The pages that people read: every file that they name is here, and every link leads somewhere."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.cli.main import COMMANDS
from agent.cli.run import run
from agent.records.journal import SCHEMA, VERSION
from agent.records.options import FIXED, option_of

ROOT = Path(__file__).parents[1]
OTHERS = tuple(ROOT / folder / "README.md" for folder in ("agent/ideas", "benchmarks", "experiments"))
PAGES = (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *OTHERS)
FOLDERS = (".ci", ".github", "agent", "benchmarks", "docs", "tests")
SUFFIXES = {".c", ".md", ".png", ".py", ".toml", ".tsv", ".yml"}
MADE = {"FACTS.md", "IDEA.md", "TASK.md", "notes.md"}  # files in an agent's folder while it works
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*"))
PATHS = {str(path.relative_to(ROOT)) for path in FILES}
NAMES = {path.name for path in FILES}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    return re.sub(r"(?ms)^```.*?^```$", "", page.read_text())


def lost_files(text: str) -> Iterator[str]:
    """Yield each word in backticks that looks like a file or folder of this repository and is none."""
    for word in re.findall(r"`([^`\s]+)`", text):
        path = word.rstrip("/")
        if "*" in path or path in MADE:
            continue
        if path.split("/")[0] in FOLDERS and "/" in word:
            if path not in PATHS:
                yield word
        elif "/" not in word and Path(word).suffix in SUFFIXES and word not in NAMES:
            yield word


def anchors(page: Path) -> set[str]:
    """Return the fragments that GitHub makes of a page's headings."""
    headings = re.findall(r"(?m)^#+ +(.+)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost_links(page: Path) -> Iterator[str]:
    for path, fragment in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", prose(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield f"{path}#{fragment}"


@every_page
def test_every_file_that_a_page_names_is_in_the_repository(page):
    assert list(lost_files(prose(page))) == []


@every_page
def test_every_relative_link_leads_somewhere(page):
    assert list(lost_links(page)) == []


def test_every_promise_of_contributing_md_has_tests_that_the_readmes_command_runs():
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Which test holds which promise?")[2]
    rows = [row.split(" | ") for row in re.findall(r"(?m)^\| (.+\.py`.*) \|$", table)]
    assert len(rows) >= 20
    for promise, tests, *_ in rows:
        texts = [
            (ROOT / "tests" / path.removeprefix("tests/")).read_text() for path in re.findall(r"`([\w/]+\.py)`", tests)
        ]
        assert texts, promise
        for text in texts:
            assert text.count("\ndef test_") > text.count("\n@pytest.mark.slow"), promise
            assert "mark.slow" not in text.partition("\npytestmark = ")[2][:150], promise


def test_every_command_that_a_page_names_exists():
    named = {word for page in PAGES for word in re.findall(r"(?:`|uv run )nightshift ([a-z]+)", page.read_text())}
    assert {"run", "confirm", "doctor"} <= named
    assert named - COMMANDS.keys() == set()


def test_every_page_of_docs_is_reached_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in ROOT.glob("docs/*.md") if f"](docs/{page.name})" not in readme] == []


def test_every_query_of_the_page_about_journals_runs_on_a_new_journal():
    page = (ROOT / "experiments" / "README.md").read_text()
    assert f"the tables of format {VERSION}." in page
    queries = re.findall(r'"\$journal" "([^"]+)"', page)
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        assert [database.execute(query).fetchall() for query in queries] == [[], []]


def test_what_a_night_cannot_change_is_named_on_its_page_and_in_the_help():
    row = re.search(r"(?m)^\| (.+) \| cannot change: verdicts", (ROOT / "docs" / "night.md").read_text())
    said = re.search(r"(--judge[^;]+) cannot change", str(run.__doc__))
    for words in (row, said):
        assert words is not None
        assert set(re.findall(r"--[\w-]+", words[1])) == set(map(option_of, FIXED))
