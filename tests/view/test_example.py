"""The README's report says the same as the night's record: its rows are computed again from that."""

import base64
import hashlib
import html
import re
import statistics

from nights import PROJECT

from agent.records.shipped import of_folder
from agent.records.summary import lower_bpb
from agent.view.words import outcome

RECORD = of_folder(PROJECT / "experiments" / "shipped" / "five")
PAGE = (PROJECT / "docs" / "example-report.html").read_text()


def test_every_attempt_of_the_record_is_a_row_with_its_own_numbers():
    rows = dict(re.findall(r'id="attempt-(\d+)"><summary>(.*?)</summary>', PAGE))
    assert list(rows) == [str(attempt.number) for attempt in RECORD.attempts]
    for attempt in RECORD.attempts:
        number, title, word, score, _, _, _, seeds, proposer = filter(
            None, re.split(r"(?:</?span[^>]*>)+", rows[str(attempt.number)])
        )
        cells = [number, html.unescape(title), word, score, seeds, proposer]
        mean_bpb = statistics.fmean(attempt.scores_bpb)
        became = outcome(attempt.kind, lower_bpb(attempt, RECORD.parent(attempt)))
        seeds_of = str(len(attempt.scores_bpb))
        assert cells == [str(attempt.number), attempt.title, became, f"{mean_bpb:.4f}", seeds_of, attempt.proposer]


def test_its_policy_lets_a_browser_use_its_style_and_its_script():
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', PAGE)[1])
    for name in ("style", "script"):
        (text,) = re.findall(rf"(?s)<{name}>(.*?)</{name}>", PAGE)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
