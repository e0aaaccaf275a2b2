"""A night with some of everything, for what a proposer of edits is told of it."""

from dataclasses import replace

from queued import SCRIPT
from samples import NIGHT as SAMPLE

from agent.experiment import Attempt, Decision, Ending, Kind, Noise, Proposal, Run, Score, Summary
from agent.proposers.proposer import Briefing, Corpus, Left, Refusal, Setting
from agent.script.dials import outline_of

NIGHT = replace(SAMPLE, cores=8, memory_bytes=32 << 30)
NOISE = Noise(sigma_bpb=0.004, runs=5, smallest_bpb=0.011)
SETTING = Setting(
    corpus=Corpus("stories", 4.2, 8192, 1024),
    ideas={"Gate the heads": "tried #1", "Smear tokens": "yes", "Drop the cap": "unlikely"},
)


def attempt(
    number: int,
    script: str,
    kind: Kind,
    bpb: float | None = 1.5,
    *,
    title: str = "",
    speed: float = 1.0,
    **facts: object,
) -> Attempt:
    """An attempt on the first script; `speed` is by that of attempt 0, which reads 3 M tokens in 30 s."""
    ending = Ending.FINISHED if bpb is not None else Ending.CRASHED
    summary = Summary(30.0, None, 2048.0, None, 3.0 * speed, int(1000 * speed), 7.0)
    run = Run(0, ending, 0, 30.0, summary, "KeyError: 1", Score(bpb, 1.0) if bpb else None, peak_bytes=4 << 30)
    decision = Decision(kind, "why", gain_bpb=-0.01, sure=0.4 if kind is Kind.LUCK else 0.1)
    proposal = Proposal.of(
        script, title or f"title {number}", f"Reason {number}. And more.", "llm:m" if number else "you"
    )
    facts["outline"] = outline_of(script, "cpu")
    return Attempt(number, 0 if number else None, proposal, "", "c", (run,), (decision,), True, **facts)  # type: ignore[arg-type]


def edited(**dials: object) -> str:
    text = SCRIPT
    for name, value in dials.items():
        old = next(line for line in SCRIPT.splitlines() if line.startswith(f"{name} ="))
        text = text.replace(old, f"{name} = {value!r}")
    return text


def reworked(body: str) -> str:
    return SCRIPT.replace("return LR", body)


HISTORY = (
    attempt(0, SCRIPT, Kind.BASELINE, 1.6),
    attempt(1, edited(LR=0.08), Kind.WORSE, 1.7),
    attempt(2, reworked("return 2 * LR"), Kind.KEPT, 1.5, speed=1.1),
    attempt(3, edited(LR=0.02, DEPTH=6), Kind.LUCK, 1.595),
    attempt(4, reworked("return LR / 2"), Kind.LUCK, 1.598, speed=0.5),
    attempt(5, reworked("return LR[0]"), Kind.CRASHED, None),
)


def briefing_of(*more: Attempt, setting: Setting | None = SETTING, **facts: object) -> Briefing:
    """What a proposer of this night is told; the best script is attempt 2."""
    history = (*HISTORY, *more)
    whole = {
        "noise": NOISE,
        "program": "Lower val_bpb.",
        "notes": ("try depth",),
        "left": Left(7, 5400.0),
        "refused": (Refusal(Proposal.of(SCRIPT, "again", "", "llm"), "tried before"),),
    }
    return Briefing(NIGHT, history, history[2], setting=setting, **(whole | facts))  # type: ignore[arg-type]
