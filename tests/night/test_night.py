"""Whole nights with seconds-long experiments: what they leave behind, and what they never touch."""

import dataclasses
import sqlite3
from dataclasses import dataclass
from itertools import groupby

import pytest
from nights import SCRIPTS, Grounds, Quiet, git, make_repository, scripted_context, unigram
from samples import NIGHT

from agent.errors import NightError, ScriptError
from agent.experiment import Ending, Proposal, Review, Status
from agent.judging.judges import Greedy
from agent.judging.noise import noise
from agent.night.lock import only_night
from agent.night.loop import run_night
from agent.records import journal
from agent.records.journal import Journal
from agent.records.place import Place

BETTER, WORSE = unigram(SHARPNESS=1.0), unigram(SHARPNESS=0.2)
DIVERGES, WEIGHTLESS = ((SCRIPTS / name).read_text() for name in ("diverges.py", "weightless.py"))
THREE_LOGITS = BETTER.replace("self.logits.size))", "3))").replace("(self.logits, (", "(self.logits[:3], (")


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def after_a_night(tmp_path_factory, tiny_data):
    """A user's repository in the morning after a night of one of everything; the user was in the middle of an edit."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("night") / "user", unigram()))
    (grounds.root / "train_mlx.py").write_text(unigram(NOTE="an uncommitted edit"))
    (grounds.root / "half.txt").write_text("staged")
    grounds.git("add", "half.txt")
    (grounds.root / "half.txt").write_text("and edited again")
    before = snapshot(grounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        with scripted_context(grounds.root, "t", [WORSE, BETTER, DIVERGES, WEIGHTLESS, THREE_LOGITS]) as context:
            (grounds.root / "prepare.py").write_text("raise SystemExit('edited in the middle of the night')")
            run_night(context)
    return Morning(grounds, before)


@dataclass(frozen=True)
class Morning:
    grounds: Grounds
    before: dict[str, bytes]


def tip(grounds: Grounds, tag: str = "t") -> str:
    return grounds.git("rev-parse", f"refs/heads/experiments/0.05s-{tag}")


def test_a_better_run_moves_the_branch_and_worse_ones_leave_it(after_a_night):
    """Runs see copies of the fixed files from when the night opened."""
    grounds = after_a_night.grounds
    statuses = [row["status"] for row in grounds.rows()]
    assert statuses == ["keep", "discard", "keep", "crash", "crash", "crash"]
    assert tip(grounds) == grounds.attempts("t")[2].commit


def test_every_attempt_stays_a_ref_whose_commit_holds_the_script_alone(after_a_night):
    grounds = after_a_night.grounds
    for attempt in grounds.attempts("t")[1:]:
        ref = f"refs/experiments/t/{attempt.number:04d}"
        assert grounds.git("rev-parse", ref) == attempt.commit
        assert grounds.git("diff-tree", "--no-commit-id", "-r", "--name-only", ref) == "train_mlx.py"
        assert grounds.git("show", f"{ref}:train_mlx.py") == attempt.proposal.script.strip()
        message = grounds.git("log", "-1", "--format=%B", ref)
        assert message.startswith(f"script {attempt.number}\n\nIt might be better.\n\nProposer: scripted")


def test_the_users_tree_index_and_head_are_untouched(after_a_night):
    grounds = after_a_night.grounds
    edited = {"prepare.py": b"raise SystemExit('edited in the middle of the night')"}
    assert snapshot(grounds) == after_a_night.before | edited
    status = ["AM half.txt", " M prepare.py", " M train_mlx.py", "?? results.tsv"]
    assert grounds.git("status", "--porcelain").splitlines() == status


def test_attempt_0_is_the_script_as_it_stands_uncommitted_edits_included(after_a_night):
    grounds = after_a_night.grounds
    assert grounds.git("show", "refs/experiments/t/0000:train_mlx.py") == unigram(NOTE="an uncommitted edit").strip()
    assert grounds.git("diff-tree", "--no-commit-id", "-r", "--name-only", "refs/experiments/t/0000") == "train_mlx.py"


def test_a_crash_has_no_score_but_a_reason(after_a_night):
    crashes = [row for row in after_a_night.grounds.rows() if row["status"] == "crash"]
    assert [row["val_bpb"] for row in crashes] == ["", "", ""]
    assert crashes[0]["reason"] == "exit code 3: loss is nan at step 17: the run has diverged"
    assert crashes[1]["reason"] == "exit code 0: it left no out/model.safetensors"
    assert crashes[2]["reason"].startswith("scoring: exit code 1; look at load_model, the shapes")


def test_weights_are_kept_for_kept_attempts_only(after_a_night):
    kept = sorted(path.parents[2].name for path in after_a_night.grounds.folder("t").rglob("model.safetensors"))
    assert kept == ["0000", "0002"]


def snapshot(grounds: Grounds) -> dict[str, bytes]:
    paths = [path for path in grounds.root.glob("*") if path.is_file() and path.name != "results.tsv"]
    return {
        path.name: path.read_bytes()
        for path in (*paths, grounds.root / ".git" / "index", grounds.root / ".git" / "HEAD")
    }


def test_a_night_that_goes_on_with_nothing_left_to_decide_puts_its_lost_rows_back(trained):
    rows, results = trained.rows(), trained.root / "results.tsv"
    results.write_text(results.read_text().splitlines()[0] + "\n")
    trained.try_scripts("t", [])
    assert trained.rows() == rows


@pytest.mark.parametrize("script", ["def main(): ...\n", f"import torch\n{BETTER}"])
def test_a_proposal_that_breaks_the_contract_costs_no_run(trained, monkeypatch, script):
    monkeypatch.setattr("agent.night.proposals.WAITS_S", ())
    before = trained.attempts("t")
    trained.try_scripts("t", [script] * 4)
    assert trained.attempts("t") == before


def test_a_night_without_a_baseline_ends_with_a_sentence(grounds):
    (grounds.root / "train_mlx.py").write_text((SCRIPTS / "diverges.py").read_text())
    with pytest.raises(ScriptError, match=r"attempt 0, .* no score that counts: exit code 3: loss is nan .* show t:0;"):
        grounds.try_scripts("t", [BETTER])
    assert [row["status"] for row in grounds.rows()] == ["crash"]


def test_somebody_moving_the_branch_ends_the_night_and_keeps_their_commit(trained):
    with scripted_context(trained.root, "t", [BETTER] * 4) as context:
        trained.git("update-ref", "refs/heads/experiments/0.05s-t", "HEAD")
        with pytest.raises(Exception, match=r"was moved to .* by somebody else"):
            run_night(context)
    assert tip(trained) == trained.git("rev-parse", "HEAD")


def test_another_device_of_the_same_kind_is_refused(trained):
    with sqlite3.connect(trained.folder("t") / "journal.sqlite") as database:
        database.execute("UPDATE night SET value = 'another CPU' WHERE fact = 'device'")
    with pytest.raises(NightError, match=r"night t runs on another CPU, and this is .* use another --tag"):
        trained.try_scripts("t", [])


def test_the_latest_night_is_the_one_that_was_last_at_work(grounds):
    place = Place.of(grounds.root / "train_mlx.py")
    for tag, started in (("b", "2026-01-02T00:00:00Z"), ("a", "2026-01-03T00:00:00Z"), ("c", "2026-01-01T00:00:00Z")):
        with Journal.create(place.journal(tag), dataclasses.replace(NIGHT, tag=tag, started=started)):
            pass
    assert place.tags() == ("c", "b", "a")
    with Journal.resume(place.journal("c")) as opened:
        opened.record_call()
    assert place.tags() == ("b", "a", "c")


@dataclass(frozen=True)
class Twice(Greedy):
    """A judge who asks for a second run of each attempt once all are there."""

    def review(self, history):
        numbers = (attempt.number for attempt in history if attempt.seeds < 2)
        return Review(tuple(numbers) if len(history) == 2 else ())


def test_results_and_page_tell_of_a_later_run_as_soon_as_it_has_ended(grounds):
    told = []
    with scripted_context(grounds.root, "t", [BETTER]) as context:
        tells = {"record_changed": lambda: told.append([row["seeds"] for row in grounds.rows()])}
        run_night(dataclasses.replace(context, judge=Twice(), **tells))
    assert [seeds for seeds, _ in groupby(told)] == [["1"], ["1", "1"], ["2", "1"], ["2", "2"]]
    with Journal.read(grounds.folder("t") / "journal.sqlite") as journal:
        assert journal.noise() == noise(journal.attempts()) is not None


class Sweeper(Quiet):
    """A user who cleans the repository while its night runs: nights are ignored files."""

    def attempt_settled(self, attempt):
        super().attempt_settled(attempt)
        if attempt.number == 1:
            git(self.root, "clean", "-fdxq", "-e", "results.tsv")


@pytest.mark.slow
def test_a_night_whose_journal_is_swept_away_ends_with_every_row_in_the_results(grounds):
    with scripted_context(grounds.root, "t", [BETTER, WORSE, unigram(SHARPNESS=0.3)]) as context:
        watcher = Sweeper()
        watcher.root = grounds.root
        with pytest.raises(NightError, match="was removed while its night ran"):
            run_night(dataclasses.replace(context, watcher=watcher))
    assert [row["attempt"] for row in grounds.rows()] == ["0", "1"]


def test_one_night_at_a_time_has_a_repository(grounds):
    with only_night(grounds.root / ".git") as tell:
        tell("first", grounds.folder("first"))
        with pytest.raises(NightError, match=r"night first \(pid"), only_night(grounds.root / ".git"):
            pass


class Visitor(Quiet):
    """A user who looks at the night's branch while it runs, and goes back."""

    def attempt_settled(self, attempt):
        super().attempt_settled(attempt)
        if attempt.number == 0:
            git(self.root, "checkout", "-q", "experiments/0.05s-t")
        if attempt.number == 1:
            self.seen = git(self.root, "rev-parse", "HEAD"), git(self.root, "status", "--porcelain", "-uno")
            git(self.root, "checkout", "-q", "-")


@pytest.mark.slow
def test_a_branch_that_somebody_has_checked_out_waits_for_them(grounds):
    with scripted_context(grounds.root, "t", [unigram(SHARPNESS=0.6), BETTER]) as context:
        watcher = Visitor()
        watcher.root = grounds.root
        run_night(dataclasses.replace(context, watcher=watcher))
    attempts = grounds.attempts("t")
    assert [attempt.status for attempt in attempts] == ["keep", "keep", "keep"]
    assert watcher.seen == (attempts[0].commit, "")
    assert tip(grounds) == attempts[2].commit


@pytest.mark.slow
def test_a_script_that_takes_the_machine_down_twice_is_not_tried_again(grounds, monkeypatch):
    with scripted_context(grounds.root, "t", []) as context:
        run_night(context)
        context.journal.add_attempt(1, 0, Proposal.of(WORSE, "heavy", "", "scripted"), "2026-11-21T00:00:00Z")
        for boot in ("one start", "the next"):
            with monkeypatch.context() as patch:
                patch.setattr(journal, "boot_id", lambda boot=boot: boot)
                context.journal.start_run(1, 0)
            context.journal.mark_lost_runs()
    grounds.try_scripts("t", [])
    last = grounds.attempts("t")[1]
    assert [run.ending for run in last.runs] == [Ending.INVALID, Ending.CRASHED]
    assert (last.status, last.decision.reason) == (Status.CRASH, "ended by a signal: the machine went down during it")
