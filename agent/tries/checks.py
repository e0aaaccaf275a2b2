"""Check an edit before it costs a run, and before it opens a night."""

from dataclasses import dataclass, replace

from agent.errors import NightError
from agent.experiment import Attempt, History, Proposal, incumbent
from agent.invocation import typed
from agent.night.opening import check_kept, committed, terms_of
from agent.proposers.checked import check_proposal
from agent.records.journal import Journal
from agent.records.place import Place
from agent.script.contract import check_script
from agent.script.dials import fingerprint, tried_as
from agent.script.merge import Basis, basis_of
from agent.tries.request import TryRequest


class StaleEdit(NightError):
    """Say that an edit was made from a script that is no longer the best."""

    def __init__(self, sentence: str, basis: Basis, history: History, device_kind: str) -> None:
        super().__init__(sentence)
        self.basis, self.history, self.device_kind = basis, history, device_kind

    @property
    def best(self) -> Attempt | None:
        return incumbent(self.history)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Hold an edit that can be tried, and what is known of it before it is."""

    request: TryRequest  # with the night's tag, where there is a night
    proposal: Proposal
    known: int | None  # the attempt with this script that has no verdict yet, or that came of this very request
    basis: Basis


def prepare(request: TryRequest, place: Place, *, is_taken_up: bool = False) -> Prepared:
    """Check all that can be known before a run; raise NightshiftError for what cannot be tried.

    This comes before a night is opened: a night that came of a slip would be in the way of the next. A request that is
    taken up may have been tried already, by a process that was killed before it could write down the answer.
    """
    if request.tag is None and place.tags():
        request = replace(request, tag=place.tags()[-1])
    before, _ = terms_of(place, request.tag, request.terms)  # first: a night with other terms can try no edit
    if before is not None:
        check_kept(before, request.budget_s, request.seed)
    return _checked(request, place, is_taken_up=is_taken_up)


def _checked(request: TryRequest, place: Place, *, is_taken_up: bool) -> Prepared:
    proposal = request.proposal()
    check_script(proposal.script, request.file)
    base = committed(place)
    if fingerprint(proposal.script) == fingerprint(base):
        raise NightError(f"{place.script} is as it was committed; edit it first, or name another file with --edit")
    if request.tag is None or request.tag not in place.tags():
        return Prepared(request, proposal, None, Basis(0))  # attempt 0 will be the committed script
    with Journal.read(place.journal(request.tag)) as journal:
        night, history = journal.night(), journal.attempts()
    number = tried_as(proposal.script, history)
    if number and (is_taken_up or not history[number].settled):
        return Prepared(request, proposal, number, Basis(history[number].parent))
    check_proposal(proposal, history, place.script)
    basis = basis_of(proposal.script, history, base) if history else Basis(0)
    if basis.missing and not request.anyway:
        raise StaleEdit(_stale(request, basis), basis, history, night.device_kind)
    return Prepared(request, proposal, None, basis)


def _stale(request: TryRequest, basis: Basis) -> str:
    edits = ", ".join(f"#{one.number} {one.proposal.title}" for one in basis.missing)
    what = "the kept edit" if len(basis.missing) == 1 else "the kept edits"
    base = "the committed script" if basis.number is None else f"attempt {basis.number}"
    return f"{request.file} lacks {what} {edits}: it was made from {base}; {remedy()}"


def remedy() -> str:
    """Return what to do about a stale edit."""
    take = typed("take", "best")  # which keeps a copy of the edit
    return f"take the best script with: {take}, and make your edit again; or try it as it stands, with --anyway"
