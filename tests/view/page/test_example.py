"""The README's report says the same as the night's record: its rows are computed again from that."""

import html
import re
import statistics

from nights import PROJECT

from agent.experiment import incumbent
from agent.records.shipped import of_folder

RECORD = of_folder(PROJECT / "experiments" / "shipped" / "nov22-cpu-long")
PAGE = (PROJECT / "docs" / "example-report.html").read_text()


def test_every_attempt_of_the_record_is_a_row_with_its_own_numbers():
    rows = dict(re.findall(r'id="attempt-(\d+)"><summary>(.*?)</summary>', PAGE))
    assert list(rows) == [str(one.number) for one in RECORD.attempts]
    for one in RECORD.attempts:
        number, title, kind, score, _, _, seeds, source = filter(
            None, re.split(r"(?:</?span[^>]*>)+", rows[str(one.number)])
        )
        told = [number, html.unescape(title), kind, score, seeds, source]
        mean_bpb = statistics.fmean(one.scores_bpb)
        seeds_of = str(len(one.scores_bpb))
        assert told == [str(one.number), one.title, one.kind, f"{mean_bpb:.4f}", seeds_of, one.source]


def test_the_head_says_what_the_record_comes_to():
    ideas, best = [one for one in RECORD.attempts if one.is_edit], incumbent(RECORD.attempts)
    kept = sum(one.status == "keep" for one in ideas)
    before, after = (statistics.fmean(one.scores_bpb) for one in (RECORD.attempts[0], best))
    claim = f"{len(ideas)} ideas tried, {kept} kept: val_bpb went down from {before:.4f} to {after:.4f}."
    assert claim in " ".join(PAGE.split())


def test_every_scored_attempt_is_a_dot_that_leads_to_its_row():
    broad = PAGE[PAGE.index('<div class="broad">') :].partition("</svg>")[0]
    links = set(re.findall(r'href="#attempt-(\d+)"', broad))
    assert links == {str(one.number) for one in RECORD.attempts if one.val_bpb is not None}
