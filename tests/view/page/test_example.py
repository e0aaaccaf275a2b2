"""The README's report says the same as the night's record and the ledger: all of it is computed again from those."""

import csv
import json
import math
import re
import statistics
from html.parser import HTMLParser

import pytest
from nights import PROJECT

from agent.experiment import incumbent
from agent.records.shipped import read_record

TAG = "nov22-cpu-long"
NORMAL_95 = 1.96


class Words(HTMLParser):
    """Collects the text of the page, and the JSON that its table is made of."""

    def __init__(self):
        super().__init__()
        self.text, self.state, self._in = [], "", ""

    def handle_starttag(self, tag, attrs):
        self._in = "state" if dict(attrs).get("id") == "state" else tag

    def handle_endtag(self, tag):
        self._in = ""

    def handle_data(self, data):
        if self._in == "state":
            self.state += data
        elif self._in not in ("script", "style"):
            self.text.append(data)


@pytest.fixture(scope="module")
def page():
    words = Words()
    words.feed((PROJECT / "docs" / "example-report.html").read_text())
    return words


@pytest.fixture(scope="module")
def shown(page):
    (night,) = json.loads(page.state)["nights"]
    assert night["tag"] == TAG
    return night | {"rows": [dict(zip(night["columns"], row, strict=True)) for row in night["rows"]]}


@pytest.fixture(scope="module")
def record():
    folder = PROJECT / "experiments" / "shipped" / TAG
    return read_record(folder)


def test_every_attempt_of_the_record_is_a_row_with_its_own_numbers(shown, record):
    assert len(shown["rows"]) == len(record.history) >= 20
    for row, attempt in zip(sorted(shown["rows"], key=lambda row: row["number"]), record.history, strict=True):
        for name in ("number", "parent", "status", "kind"):
            assert row[name] == getattr(attempt, name)
        for name in ("title", "source"):
            assert row[name] == getattr(attempt.proposal, name)
        assert row["val_bpb"] == pytest.approx(statistics.fmean(attempt.scores_bpb), abs=1e-6)
        assert row["seeds"] == len(attempt.scores_bpb)
        for name, digits in (("gain_bpb", 1e-6), ("sure", 1e-3)):
            told = getattr(attempt.decision, name)
            assert row[name] == (None if told is None else pytest.approx(told, abs=digits))


def test_the_rows_are_those_of_the_ledger(shown):
    with (PROJECT / "results.tsv").open(newline="") as file:
        ledger = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["tag"] == TAG]
    assert [int(row["attempt"]) for row in ledger] == sorted(row["number"] for row in shown["rows"])
    by_number = {row["number"]: row for row in shown["rows"]}
    for line in ledger:
        row, detail = by_number[int(line["attempt"])], shown["details"][line["attempt"]]
        assert line["status"] == row["status"]
        assert float(line["val_bpb"]) == pytest.approx(row["val_bpb"], abs=1e-6)
        assert line["commit"] == detail["commit"]
        assert float(line["params_M"]) == pytest.approx(detail["params"] / 1e6, abs=0.01)


def test_the_head_says_what_the_record_comes_to(page, record):
    text = " ".join("".join(page.text).split())
    ideas = [one for one in record.history if one.is_edit]
    kept = [one for one in ideas if one.status == "keep"]
    first, best, sigma_bpb = record.history[0], incumbent(record.history), record.noise.sigma_bpb
    before, after = (statistics.fmean(one.scores_bpb) for one in (first, best))
    assert f"{len(ideas)} ideas tried, {len(kept)} kept" in text
    assert f"went down from {before:.4f} to {after:.4f}" in text
    error_bpb = sigma_bpb * math.sqrt(sum(1 / len(one.scores_bpb) for one in (first, best)))
    found = re.search(r"the best script gains ([\d.]+) \(([\d.]+) to ([\d.]+)\)", text)
    assert found is not None
    gain_bpb = before - after
    expected = (gain_bpb, gain_bpb - NORMAL_95 * error_bpb, gain_bpb + NORMAL_95 * error_bpb)
    assert [float(number) for number in found.groups()] == pytest.approx(expected, abs=1e-4)
    assert f"σ {sigma_bpb:.4f}" in text


def test_every_scored_attempt_is_a_dot_that_leads_to_its_row(record):
    drawn = (PROJECT / "docs" / "example-report.html").read_text()
    progress = drawn[drawn.index("<h2>Progress</h2>") :]
    broad = progress[: progress.index("</svg>")]
    links = set(re.findall(r'href="#attempt-(\d+)"', broad))
    assert links == {str(one.number) for one in record.history if one.val_bpb is not None}
