"""The verdict on a replay says in one sentence whether the difference is chance, and if not, what it may be."""

from dataclasses import replace

import pytest
from charted import a_run, an_attempt, night

from agent.view.replayed import Replay, Verdict, replayed

REPLAY = Replay(seed=0, val_bpb=1.2, failure=None, tokens_s=1000.0, device="a CPU", protocol="p" * 12, changed_files=())
ONE = an_attempt(a_run(0, 1.2))


@pytest.mark.parametrize(
    ("attempt", "again", "verdict", "words"),
    [
        (ONE, REPLAY, Verdict.REPRODUCED, "reproduced exactly: 1.200000 with seed 0, then and now"),
        (ONE, replace(REPLAY, val_bpb=1.1800), Verdict.WITHIN_NOISE, "0.020000 lower than then, and chance alone"),
        (ONE, replace(REPLAY, val_bpb=1.2276), Verdict.WITHIN_NOISE, "chance alone explains 0.027719"),
        (ONE, replace(REPLAY, val_bpb=1.2278), Verdict.DIFFERENT, "different: 0.027800 higher than then, more than"),
        # another seed is compared with the mean, which is less noisy the more runs it has
        (ONE, replace(REPLAY, seed=7), Verdict.WITHIN_NOISE, "the same as the mean of its 1 run in 6 decimals"),
        (
            an_attempt(*(a_run(seed, 1.2) for seed in range(4))),
            replace(REPLAY, seed=7, val_bpb=1.2220),
            Verdict.DIFFERENT,
            "higher than the mean of its 4 runs, more than the 0.021913",
        ),
        (
            ONE,
            replace(REPLAY, protocol="def"),
            Verdict.NOT_COMPARABLE,
            "protocol def now, pppppppppppp then",
        ),
        (
            ONE,
            replace(REPLAY, val_bpb=None, failure="exit code 1: no"),
            Verdict.FAILED,
            "failed: exit code 1: no;",
        ),
        (ONE, replace(REPLAY, failure="audit: 3 of 256"), Verdict.NOT_BELIEVED, "not believed: audit: 3 of 256"),
        (
            an_attempt(a_run(0, None), words="exit code 1: yes"),
            replace(REPLAY, val_bpb=None, failure="exit code 1: no"),
            Verdict.FAILED,
            "failed: exit code 1: no; then it had none: exit code 1: yes",
        ),
        (an_attempt(a_run(0, None), words="stopped early"), REPLAY, Verdict.SCORED_NOW, "it had none: stopped early"),
    ],
)
def test_a_replay_gets_the_verdict_that_the_nights_noise_allows(attempt, again, verdict, words):
    found = replayed(night(attempt, sigma_bpb=0.01), attempt, again)
    assert found.verdict is verdict
    assert words in found.sentence


def test_without_noise_that_was_measured_a_difference_has_no_verdict():
    found = replayed(night(ONE, sigma_bpb=None), ONE, replace(REPLAY, val_bpb=1.3))
    assert found.verdict is Verdict.UNKNOWN
    assert found.sentence.startswith("0.100000 higher than then; how much is chance is not known")


def test_a_difference_beyond_noise_names_what_differs_between_then_and_now():
    again = replace(
        REPLAY, val_bpb=1.4, device="another Mac", changed_files=("corpus/manifest.json", "prepare.py"), tokens_s=800.0
    )
    said = replayed(night(ONE, sigma_bpb=0.01), ONE, again).sentence
    assert "it ran on a CPU then and on another Mac now" in said
    assert "corpus/manifest.json, prepare.py changed since" in said
    assert "its tokens a second changed by -20%" in said
    lucky = replayed(night(ONE, sigma_bpb=0.01), ONE, replace(REPLAY, val_bpb=1.4, seed=7)).sentence
    assert lucky.endswith("chance explains: the night may have kept it for luck")
    alike = replayed(night(ONE, sigma_bpb=0.01), ONE, replace(REPLAY, val_bpb=1.4)).sentence
    assert alike.endswith(": MLX, Python or a driver may have another version, which a night does not record")
