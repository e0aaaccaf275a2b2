"""Find the script that `take` puts into the working tree: by the facts of its night, or by its refs alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.cli.reading.scripts import attempt_in, facts_of, latest_tag, script_of
from agent.cli.reading.which import BEST, night_place
from agent.errors import NightError, NothingYet
from agent.experiment import attempt_ref
from agent.git import Repo, valid_tag
from agent.invocation import SCRIPT, typed
from agent.model.best_script import BestScript
from agent.records.journal import Journal
from agent.records.place import Place, check_unpacked
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.read import known_tags
from agent.view.status import confirmed_branch

EXPERIMENTS = "refs/experiments/"
Wanted = int | str  # the number of an attempt, BEST or CONFIRMED


@dataclass(frozen=True, slots=True)
class AttemptScript:
    """Hold the script that is taken, and where it comes from."""

    tag: str
    number: int | None  # None: a commit that no attempt's ref names
    title: str
    val_bpb: float | None
    ref: str
    commit: str | None  # None: not made yet
    path: str  # where the night has the script, in the repository
    content: bytes


def find(place: Place, wanted: Wanted, asked: str | None) -> AttemptScript:
    """Return the script that is wanted of the night that is asked for; of the latest, where none is."""
    source = night_place(place, asked)
    tag = _tag(source, asked)
    if tag not in known_tags(source):
        return _by_refs(source, tag, wanted)
    facts = facts_of(source, tag)
    known = facts.attempt(wanted) if isinstance(wanted, int) else _chosen(facts, wanted)
    refs = refs_of(source.repo, tag)
    if known is None and wanted in refs.values():  # a ledger that was cut
        return _by_refs(source, tag, wanted)
    known = known or attempt_in(facts, int(wanted))
    if asked is None and not source.tags() and not refs:
        _check_came_along(source, tag, known)
    return _by_facts(source, facts, known)


def _tag(place: Place, asked: str | None) -> str:
    """Return the tag that is asked for, else that of the night that was last at work in the repository."""
    if asked is not None:
        if not valid_tag(asked):
            raise NightError(f"{asked!r} is no tag of a night; see: {typed('status')}")
        return asked
    if tags := place.tags():
        return tags[-1]
    newest = place.repo.git("for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(refname)", EXPERIMENTS)
    return newest.split("/")[2] if newest else latest_tag(place)


def refs_of(repo: Repo, tag: str) -> Mapping[str, int]:
    """Return commit → number for the attempts of a night whose refs are here; the first where several have one."""
    lines = repo.git("for-each-ref", "--format=%(objectname) %(refname)", f"{EXPERIMENTS}{tag}/").splitlines()
    pairs = (line.split(" ", 1) for line in reversed(lines))
    return {commit: int(name) for commit, ref in pairs if (name := ref.rpartition("/")[2]).isdecimal()}


def _check_came_along(place: Place, tag: str, attempt: AttemptFacts) -> None:
    """Raise NightError in a clone where no night has run, and which has only the records of nights from elsewhere."""
    if attempt.commit is not None and place.repo.find(attempt.commit) is not None:
        return
    check_unpacked(place, tag)
    raise NothingYet(
        f"no night has run here yet: edit {place.script} as it stands, and try it; of night {tag}, which ran "
        f"elsewhere, only the record is here"
    )


# ---- by its facts ----------------------------------------------------------------------------------------------------


def _chosen(facts: NightFacts, wanted: str) -> AttemptFacts:
    if wanted == BEST:
        return BestScript.of(facts).attempt
    found = facts.attempt(facts.dawn.script) if facts.dawn is not None else None
    if found is None:
        why = "has confirmed no script" if facts.dawn is not None else "is still to come"
        raise NothingYet(f"dawn of night {facts.tag} {why}; measure it with: {typed('confirm', '--tag', facts.tag)}")
    return found


def _by_facts(place: Place, facts: NightFacts, attempt: AttemptFacts) -> AttemptScript:
    path, ref = path_of(place, facts.tag), attempt_ref(facts.tag, attempt.number)
    content = script_of(Place(place.repo, path), facts, attempt).encode(errors="surrogateescape")
    commit = place.repo.find(ref) or attempt.commit
    return AttemptScript(facts.tag, attempt.number, attempt.title, attempt.val_bpb, ref, commit, path, content)


def path_of(place: Place, tag: str) -> str:
    """Return where a night has its script in the repository: by its journal, else by what its commits change."""
    if place.journal(tag).exists():
        with Journal.read(place.journal(tag)) as journal:
            return journal.night().script
    changed = {path for _, _, path in changes(place.repo, tag)}
    if len(changed) == 1:
        return changed.pop()
    return place.script if place.script_path.exists() else SCRIPT


def changes(repo: Repo, tag: str) -> list[tuple[str, str, str]]:
    """Return commit, blob and path of each file that an attempt of a night changed, by the refs that are here."""
    if not refs_of(repo, tag):
        return []
    which = ("--no-walk", "--no-show-signature", f"--glob={EXPERIMENTS}{tag}/*", "--diff-filter=M", "--no-renames")
    text = repo.git("log", *which, "--raw", "-z", "--no-abbrev", "--format=%x00%H")
    found, commit, words = [], "", iter(text.split("\0"))
    for word in words:
        if word.startswith("\n:"):
            found.append((commit, word.split(" ")[3], next(words)))
        elif word.strip():
            commit = word.strip()
    return found


# ---- by its refs -----------------------------------------------------------------------------------------------------


def _by_refs(place: Place, tag: str, wanted: Wanted) -> AttemptScript:
    """Return the script of a night of which only refs are here, as in a linked worktree or after a fetch."""
    repo, numbers = place.repo, refs_of(place.repo, tag)
    if not numbers:
        known = ", ".join(known_tags(place)) or "none"
        refs = f"{EXPERIMENTS}{tag}/*"
        fetch = f"git fetch REMOTE '{refs}:{refs}'"
        raise NightError(f"no night {tag} is known here; there are: {known}; fetch it from where it ran: {fetch}")
    ref = attempt_ref(tag, wanted) if isinstance(wanted, int) else _branch(place, tag, wanted)
    commit = repo.find(ref)
    if commit is None:
        there = f"{min(numbers.values())} to {max(numbers.values())}"
        raise NightError(f"night {tag} has no attempt {wanted} here; there are: {there}")
    path, number = path_of(place, tag), wanted if isinstance(wanted, int) else numbers.get(commit)
    title = repo.git("log", "-1", "--no-show-signature", "--format=%s", commit)
    content = repo.read(commit, path).encode(errors="surrogateescape")
    return AttemptScript(tag, number, title, None, ref, commit, path, content)


def _branch(place: Place, tag: str, wanted: str) -> str:
    """Return the branch of a night, or that of its confirmed script; raise NightError where it is not here."""
    wanted_tag = tag if wanted == BEST else confirmed_branch(tag)
    refs = place.repo.refs("refs/heads/experiments") + place.repo.refs("refs/remotes/*/experiments")
    found = next((ref for ref in refs if ref.rpartition("/")[2].partition("-")[2] == wanted_tag), None)
    if found is None:
        numbers = refs_of(place.repo, tag).values()
        raise NightError(
            f"which attempt of night {tag} is {wanted} is not known here: it has neither journal nor branch; name one "
            f"of {min(numbers)} to {max(numbers)}"
        )
    return found
