"""Dawn in a real repository: the harmful half of an edit of four dials is found, dropped and taken over."""

from pathlib import Path

import pytest
from dawns import remember
from nights import Grounds, make_repository, scripted_context, unigram

from agent.experiment import Kind, halves_of, incumbent
from agent.judging.findings import Findings
from agent.night.dawn import confirm_night
from agent.night.loop import run_night

BEFORE = {"SHARPNESS": 0.5, "SMOOTHING": 1.0, "SHARE": 0.25, "JITTER": 0.02}
EDIT = {"SHARPNESS": 0.75, "SMOOTHING": 1.1, "SHARE": 0.125, "JITTER": 0.021}  # less text is counted: that does harm
BETTER = unigram(**EDIT | {"SHARE": 0.25, "JITTER": 0.02})
HARMFUL = halves_of(1)[1]


@pytest.mark.slow  # five runs, each scored and audited on two texts
def test_the_harmful_half_is_dropped_and_the_night_goes_on_without_it(
    tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    grounds = Grounds(make_repository(tmp_path / "user", unigram(**BEFORE)))
    grounds.try_scripts("t", [unigram(**EDIT)])
    for number, aboves in ((0, (0.004, -0.003, 0.001, 0.0)), (1, (0.002, -0.004, 0.003, 0.001))):
        remember(grounds, number, aboves)
    with scripted_context(grounds.root, "t", []) as context:
        found = confirm_night(context, 5)
        said = context.watcher.sentences  # type: ignore[attr-defined]
        assert found is not None
        stored = context.journal.dawns()[-1].findings
    assert stored is not None
    assert Findings.of(stored) == found
    assert found.passengers == (HARMFUL,)
    question = next(one for one in grounds.attempts("t") if one.proposal.without == (HARMFUL,))
    assert found.script == question.number
    assert question.proposal.script == BETTER
    assert question.proposal.title == "#1 without the second half of #1"
    assert "SHARE, JITTER" in question.proposal.hypothesis
    assert any(
        line.startswith("  the second half of #1 brings -0.0") and line.endswith("a passenger, dropped: SHARE, JITTER")
        for line in said
    )
    kept = grounds.attempts("t")[1].decision
    assert kept is not None
    assert "the second half of #1 -0.0" in (kept.at_dawn or "")
    with scripted_context(grounds.root, "t", []) as context:
        run_night(context)
    best = incumbent(grounds.attempts("t"))
    assert best is not None
    assert (best.number, best.kind) == (question.number, Kind.ADOPTED)
