"""The ten thousandth attempt costs as much as the hundredth: counted in operations of Python, not by the clock."""

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from judged import decided
from samples import NIGHT, attempt

from agent.experiment import Attempt, Briefing, History, Kind, Script, Status, incumbent
from agent.experiment.chunks import SIZE, Chunks
from agent.judging.judges.greedy import Greedy
from agent.judging.noise import measured
from agent.proposers.catalogue.evidence import prospects
from agent.proposers.checked import Claims
from agent.proposers.mix import USUAL, by_promise
from agent.records.ledger.rendering import rendered
from agent.script.tried import first_with

KEPT, IDEAS = 40, 30  # an attempt, and attempts at known ideas: no night has more than there are
SHORT, LONG = 8 * SIZE, 33 * SIZE  # attempts; the judge learns from as many of both
MOST = 10  # operations of a step for each further attempt; before, it was several hundred


def night(count: int) -> Chunks[Attempt]:
    """Attempts of three sources at different scripts, one of them kept."""
    one = attempt(1, 1.25, Status.DISCARD)
    found = [attempt(0, 1.5, Status.KEEP)]
    for number in range(1, count):
        source = "catalogue: x" if number < IDEAS else ("search", "llm:a-model")[number % 2]
        proposal = dataclasses.replace(one.proposal, source=source, script=script(number))
        decision = decided(Status.KEEP if number == KEPT else Status.DISCARD, gain_bpb=0.1)
        parent = KEPT if number > KEPT else 0
        found.append(dataclasses.replace(one, number=number, parent=parent, proposal=proposal, decision=decision))
    return Chunks(found)


def script(number: int) -> Any:
    """As a journal gives it: its text is not looked at."""
    return Script(f"{number:064x}", b"", f"fingerprint of {number}")


def step(history: Chunks[Attempt]) -> Chunks[Attempt]:
    """Ask all that a step of a night asks of its history, after it has changed."""
    last = history[-1]
    history = history.replaced(last.number, dataclasses.replace(last, decision=decided(Status.DISCARD, "worse")))
    proposal = dataclasses.replace(last.proposal, script=script(len(history)))
    new = dataclasses.replace(last, number=len(history), proposal=proposal, decision=None, settled=False)
    history = history.added([new])
    best = incumbent(history)
    assert best is not None
    assert best.number == KEPT
    assert Greedy().judge(new, history.without(new.number)).kind is Kind.TIE
    assert len(measured(history)) > 200
    assert first_with("fingerprint of 7", history) == 7
    assert first_with("another", history) is None
    told = claims_of(history).told(Briefing(NIGHT, history, best))
    assert len(told.history) == len(history) + 1
    assert len(by_promise(dict.fromkeys(("search", "catalogue", "llm"), USUAL), told, 0)) == 3
    assert prospects([], NIGHT, told.history, 0.01, []) == []
    assert rendered(NIGHT, history)
    return history


def claims_of(history: History) -> Claims:
    claims = Claims()
    claims.follow(lambda: history)
    claims._held.append((dataclasses.replace(history[1].proposal, script=script(-1)), KEPT))
    return claims


def operations(deed: Callable[[], object]) -> int:
    """Count the operations of Python that a deed takes."""
    count, before = 0, sys.gettrace()

    def tracing(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return tracing

    sys.settrace(tracing)
    try:
        deed()
    finally:
        sys.settrace(before)
    return count


def test_a_step_costs_the_same_however_long_the_night_is():
    histories = [step(night(count)) for count in (SHORT, LONG)]
    short, long = (operations(partial(step, history)) for history in histories)
    assert (long - short) / (LONG - SHORT) < MOST
    assert short > 10_000  # they are counted
