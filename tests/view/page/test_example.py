"""The README's report says the same as the night's record and the ledger: all of it is computed again from those."""

import csv
import math
import re
import statistics
from html.parser import HTMLParser

import pytest
from nights import PROJECT

from agent.experiment import incumbent
from agent.records.shipped import of_folder
from agent.text import percent_sure

TAG = "nov22-cpu-long"
NORMAL_95 = 1.96


class Words(HTMLParser):
    """Collects the text of the page, and the cells and facts of each row."""

    def __init__(self):
        super().__init__()
        self.text, self.rows, self._in, self._names = [], {}, "", []

    def handle_starttag(self, tag, attrs):
        self._in = tag
        if "row" in (dict(attrs).get("class") or "").split():
            self._row = self.rows[int(dict(attrs)["id"].removeprefix("attempt-"))] = {"cells": [], "dt": [], "dd": []}
            self._row["status"] = dict(attrs)["class"].split()[1]
        if tag == "summary":
            self._cells = True
        if tag in ("dt", "dd") and self.rows:
            self._row[tag].append("")

    def handle_endtag(self, tag):
        self._in = ""
        if tag == "summary":
            self._cells = False

    def handle_data(self, data):
        if self._in in ("script", "style"):
            return
        self.text.append(data)
        if self.rows and getattr(self, "_cells", False) and data.strip():
            self._row["cells"].append(data)
        if self.rows and self._in in ("dt", "dd", "a") and self._row["dd" if self._in == "a" else self._in]:
            self._row["dd" if self._in == "a" else self._in][-1] += data.strip()


@pytest.fixture(scope="module")
def page():
    words = Words()
    words.feed((PROJECT / "docs" / "example-report.html").read_text())
    return words


@pytest.fixture(scope="module")
def record():
    folder = PROJECT / "experiments" / "shipped" / TAG
    return of_folder(folder)


def number(text):
    return None if text == "–" else float(text.replace("−", "-"))


def test_every_attempt_of_the_record_is_a_row_with_its_own_numbers(page, record):
    assert list(page.rows) == [one.number for one in record.attempts]
    assert len(record.attempts) >= 20
    for one in record.attempts:
        cells = page.rows[one.number]["cells"]
        assert cells[:3] == [str(one.number), one.proposal.title, one.kind]
        assert number(cells[3]) == pytest.approx(statistics.fmean(one.scores_bpb), abs=5e-5)
        assert cells[6:] == [str(len(one.scores_bpb)), one.proposal.source]
        gain_bpb = one.decision.gain_bpb
        assert number(cells[4]) == (None if gain_bpb is None else pytest.approx(gain_bpb, abs=5e-5))
        assert cells[5] == ("–" if one.decision.sure is None else percent_sure(one.decision.sure))


def test_the_rows_are_those_of_the_ledger(page):
    with (PROJECT / "results.tsv").open(newline="") as file:
        ledger = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["tag"] == TAG]
    assert [int(row["attempt"]) for row in ledger] == list(page.rows)
    for line in ledger:
        row = page.rows[int(line["attempt"])]
        facts = dict(zip(row["dt"], row["dd"], strict=True))
        assert line["status"] == row["status"]
        assert (line["val_bpb"], line["commit"]) == (facts["val_bpb"], facts["commit"])
        assert float(facts["parameters"].removesuffix(" M")) == pytest.approx(float(line["params_M"]), abs=0.011)


def test_the_head_says_what_the_record_comes_to(page, record):
    text = " ".join("".join(page.text).split())
    ideas = [one for one in record.attempts if one.is_edit]
    kept = [one for one in ideas if one.status == "keep"]
    first, best, sigma_bpb = record.attempts[0], incumbent(record.attempts), record.noise.sigma_bpb
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
    progress = drawn[drawn.index('<div class="broad">') :]
    broad = progress[: progress.index("</svg>")]
    links = set(re.findall(r'href="#attempt-(\d+)"', broad))
    assert links == {str(one.number) for one in record.attempts if one.val_bpb is not None}
