"""Do the tests find what breaks a promise? Faults are planted in a copy of the working tree, one at a time.

    python benchmarks/planted_faults.py [--only NAME …] [--tests PATH …] [--suite] [--quick] [--json FILE]

A fault is an exact piece of a file in agent/ and what stands in its place. For each, the tests of its promise run in
the copy until one fails, and where all pass those of its room. It is found where a test fails, or does not end, that
passes without it; it is missed where all pass. --tests runs these files or folders instead, --suite all tests that
README's command runs. --quick only checks that each fault can still be planted: its piece is in the file exactly once,
and the file still parses without it. This check comes first in each form.

Flat keys of --json: planted, found, missed, NAME_found, NAME_by (the test), NAME_s, missed_names.
Exit code 1 where a fault is missed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import measure

LIMIT_S = 1800.0  # of one run of tests
ROOMS = {  # of agent/ → where its tests are
    "experiment.py": ("tests/test_experiment.py", "tests/judging", "tests/night"),
    "git.py": ("tests/test_git.py", "tests/night"),
    "records": ("tests/records", "tests/night"),
    "night": ("tests/night",),
    "judging": ("tests/judging", "tests/night"),
    "runs": ("tests/runs", "tests/night", "tests/sandbox/test_cheats.py"),
    "sandbox": ("tests/sandbox", "tests/night"),
    "script": ("tests/script", "tests/night"),
    "proposers": ("tests/proposers", "tests/night"),
    "pools": ("tests/pools",),
}


@dataclass(frozen=True)
class Fault:
    """A piece of a file and what stands in its place, and the promise that this breaks."""

    name: str
    file: str  # below agent/
    old: str
    new: str
    promise: str

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests of its promise."""
        return tuple(f"tests/{path}.py" for path in FOUND_BY.get(self.name, "").split())

    def planted(self, tree: Path) -> str:
        """Return the file's text with the fault; raise Misuse where it cannot be planted in this tree."""
        path = tree / "agent" / self.file
        text = path.read_text() if path.is_file() else ""
        if (count := text.count(self.old)) != 1:
            where = f"{self.name}: agent/{self.file} has {count} of its piece, not one"
            raise measure.Misuse(f"{where}; correct the fault in {Path(__file__).name}, or take it out")
        spoilt = text.replace(self.old, self.new)
        try:
            ast.parse(spoilt)
        except SyntaxError as error:
            raise measure.Misuse(f"{self.name}: agent/{self.file} does not parse with it ({error})") from error
        return spoilt


FOUND_BY = {  # the test of its promise, below tests/
    "a second seed ends the first run": "records/test_journal",
    "an interrupted run counts": "records/test_journal",
    "half a step is recorded": "records/test_journal",
    "a removed journal is not noticed": "night/test_night",
    "the reserve is kept on a full disk": "records/test_journal",
    "a killed night's work is still shown": "records/test_journal",
    "foreign rows go": "records/test_rows",
    "a title is a formula": "records/test_rows",
    "a changed corpus is used": "records/test_checksums",
    "a seed is used twice": "night/test_second_chances",
    "dawn repeats the night's seeds": "night/test_dawn",
    "a keep is not audited": "night/test_doubts",
    "a failed audit is kept": "night/test_doubts",
    "further runs of a keep are not audited": "night/test_dawn",
    "a run begins after the hours": "night/test_pace",
    "stop lets runs begin": "night/test_in_parallel",
    "two workers measure one attempt": "night/test_in_parallel",
    "attempt 0 calibrates once more": "night/test_in_parallel",
    "one experiment too many": "night/test_ahead",
    "hours of six": "night/test_pace",
    "two nights in one repository": "night/test_steering",
    "a merge is measured as its own proof": "night/test_merging",
    "the first keep stays the incumbent": "test_experiment",
    "dawn's scores feed the judge": "judging/test_confirmation",
    "a spoilt run is made again and again": "judging/test_machine_words",
    "losses that are too low pass": "runs/test_audit",
    "losses that are no numbers pass": "runs/test_audit",
    "a small lie everywhere passes": "runs/test_audit",
    "the audit shows what comes next": "runs/test_audit",
    "a decoy begins with the truth": "runs/test_audit",
    "a row answers for the row before": "runs/test_audit",
    "an audit asks twice in a row": "runs/test_audit",
    "rows are scored in their order": "runs/test_score",
    "losses below zero count": "runs/test_score",
    "the fixed files may change": "runs/test_score",
    "scoring may take an hour": "runs/test_score",
    "weights of any size are scored": "runs/test_score",
    "a slow machine is not noticed": "judging/test_machine_words",
    "a box with the network": "sandbox/test_box",
    "keys in the environment": "sandbox/test_process",
    "validation text in a training box": "sandbox/test_box",
    "hidden folders are shown": "sandbox/test_places",
    "a script outlives its harness": "sandbox/test_process",
    "files of any size": "sandbox/test_limits_of_machine",
    "memory without a limit": "sandbox/test_limits_of_machine",
    "processes without a limit": "sandbox/test_limits_of_machine",
    "the budget is the script's own": "sandbox/test_process",
    "escapes reach the terminal": "sandbox/test_process",
    "notes in the kernel's keyrings": "sandbox/test_leftovers",
    "a script may ignore its seed": "judging/test_judge",
    "edits of a revoked script are judged": "judging/test_any_order",
    "strict errs ten times as often": "judging/test_judge",
    "nothing is revoked": "judging/test_judge",
    "outliers are discoveries": "judging/test_belief",
    "miracles are believed": "judging/test_judge",
    "a branch that others moved is overwritten": "test_git",
    "a resumed commit is another one": "test_git",
    "an executable script loses its mode": "test_git",
    "a hook's repository is written": "test_git",
    "another device's preset is set": "script/test_dials",
    "a range in log may hold zero": "script/test_dials",
    "two dials of one line are mixed up": "script/test_dials",
    "both turned a dial": "script/test_merge",
    "an edit that cannot be taken out": "script/test_merge",
    "a node writes any file": "pools/test_ray_pool",
    "a node's file goes through a link": "pools/test_node",
    "two workers share a core": "pools/test_node",
    "an entry is tried twice": "proposers/test_queue",
    "ideas that were paid for are lost by a kill": "night/test_path_of_an_idea",
}

FAULTS = (
    # ---- records -----------------------------------------------------------------------------------------------------
    Fault(
        "a second seed ends the first run",
        "records/journal.py",
        'self._write((f"UPDATE runs SET {columns} WHERE id = ?", (*facts.values(), run_id)))',
        'self._write((f"UPDATE runs SET {columns} WHERE attempt = (SELECT attempt FROM runs WHERE id = ?)", '
        "(*facts.values(), run_id)))",
        "A finished run is never lost.",
    ),
    Fault(
        "an interrupted run counts",
        "records/journal.py",
        "endings = boot, Ending.LOST, Ending.SPOILT",
        "endings = boot, Ending.CRASHED, Ending.SPOILT",
        "An interrupted run is made again, and never counted.",
    ),
    Fault(
        "half a step is recorded",
        "records/journal.py",
        '            self._db.execute("BEGIN IMMEDIATE")\n',
        "",
        "The journal holds whole steps.",
    ),
    Fault(
        "a removed journal is not noticed",
        "records/journal.py",
        "is_in_place = self._path.stat().st_ino == self._inode",
        "is_in_place = True",
        "A night whose journal is removed says so.",
    ),
    Fault(
        "the reserve is kept on a full disk",
        "records/journal.py",
        "if not (disk_is_full(error) and self.give_reserve()):",
        "if True:",
        "A result is recorded although the disk is full.",
    ),
    Fault(
        "a killed night's work is still shown",
        "records/journal.py",
        'self._write(("DELETE FROM work", ()), _insert(',
        "self._write(_insert(",
        "What is shown as running does run.",
    ),
    Fault(
        "foreign rows go",
        "records/results.py",
        "elif line and tag not in nights and",
        "elif line and tag in nights and",
        "results.tsv keeps the rows of other clones and tools.",
    ),
    Fault(
        "a title is a formula",
        "records/results.py",
        "return TEXT_MARK + cell if FORMULA.match(cell) else cell",
        "return cell",
        "No cell of results.tsv is read as a formula.",
    ),
    Fault(
        "a changed corpus is used",
        "records/checksums.py",
        "if not path.is_file() or digest(path) != wanted:",
        "if not path.is_file():",
        "A corpus that changes during a night is noticed before a score.",
    ),
    # ---- the plan of a night -----------------------------------------------------------------------------------------
    Fault(
        "a seed is used twice",
        "night/plan.py",
        "if seed not in taken)",
        "if seed not in taken or done)",
        "Each run of an attempt has another seed.",
    ),
    Fault(
        "dawn repeats the night's seeds",
        "night/plan.py",
        "self.context.night.seed + DAWN_SEED * dawn",
        "self.context.night.seed + 0 * dawn",
        "Dawn confirms on seeds that no choice has seen.",
    ),
    Fault(
        "a keep is not audited",
        "night/plan.py",
        "if decision.status is Status.KEEP and (audit := self._audit_of(attempt)) is not None:",
        "if decision.status is Status.CRASH and (audit := self._audit_of(attempt)) is not None:",
        "Nothing is kept without an audit.",
    ),
    Fault(
        "a failed audit is kept",
        "night/plan.py",
        "if decision.status is Status.KEEP or decision.kind is Kind.OVERTAKEN:",
        "if decision.kind is Kind.OVERTAKEN:",
        "What fails its audit is not kept.",
    ),
    Fault(
        "further runs of a keep are not audited",
        "night/plan.py",
        "is_kept = attempt.settled and attempt.status is Status.KEEP",
        "is_kept = False",
        "Every run that a keep rests on is audited.",
    ),
    Fault(
        "a run begins after the hours",
        "night/plan.py",
        "return job if is_allowed else None",
        "return job",
        "No run begins that would end after the hours.",
    ),
    Fault(
        "stop lets runs begin",
        "night/plan.py",
        "if not (stop.after_run and isinstance(step, Trial | Measure)):",
        "if True:",
        "A night that is stopped begins no further run.",
    ),
    Fault(
        "two workers measure one attempt",
        "night/plan.py",
        "if flight.has(attempt.number) and not calibrates:",
        "if False and not calibrates:",
        "Nothing is doubled on many workers.",
    ),
    Fault(
        "attempt 0 calibrates once more",
        "night/plan.py",
        "or len(begun) >= wanted:",
        "or len(begun) > wanted:",
        "Attempt 0 has a run beside itself on each worker, and no more.",
    ),
    Fault(
        "one experiment too many",
        "night/limits.py",
        "return self.experiments is not None and ideas > self.experiments",
        "return self.experiments is not None and ideas > self.experiments + 1",
        "--experiments is kept.",
    ),
    Fault(
        "hours of six",
        "night/limits.py",
        "needed_s <= self.hours * 3600",
        "needed_s <= self.hours * 21600",
        "--hours is kept.",
    ),
    Fault(
        "two nights in one repository",
        "night/lock.py",
        "        lock.acquire(timeout=BRIEFLY_S)\n",
        "        pass\n",
        "One night at a time has a repository.",
    ),
    Fault(
        "a merge is measured as its own proof",
        "night/merging.py",
        "if merges is not None and sureness(history[merges]) >= SURE_BASE:",
        "if merges is not None:",
        "Only likely gains are merged on top of one another unmeasured.",
    ),
    # ---- the nouns ---------------------------------------------------------------------------------------------------
    Fault(
        "the first keep stays the incumbent",
        "experiment.py",
        "return next(reversed(kept(history)), None)",
        "return next(iter(kept(history)), None)",
        "The branch points at the latest keep.",
    ),
    Fault(
        "dawn's scores feed the judge",
        "experiment.py",
        "scores = (run.score for run in self.done_runs)",
        "scores = (run.score for run in self.counted_runs)",
        "Dawn's runs answer dawn's question alone.",
    ),
    Fault(
        "a spoilt run is made again and again",
        "experiment.py",
        "return seed not in spoilt and len(spoilt) <= len(self.counted_runs) // RUNS_A_CHANCE",
        "return True",
        "What the machine spoils is void once, and then it counts.",
    ),
    # ---- the audit and the score -------------------------------------------------------------------------------------
    Fault(
        "losses that are too low pass",
        "runs/audit.py",
        "wrong = int((np.abs(off) > TOLERANCE_NATS).sum())",
        "wrong = int((-off > TOLERANCE_NATS).sum())",
        "Invented losses fail the audit.",
    ),
    Fault(
        "losses that are no numbers pass",
        "runs/audit.py",
        "off = np.where(np.isfinite(off), off, np.inf)",
        "off = np.where(np.isfinite(off), off, 0.0)",
        "Logits that are no numbers fail the audit.",
    ),
    Fault(
        "a small lie everywhere passes",
        "runs/audit.py",
        "elif mean > MEAN_TOLERANCE_NATS:",
        "elif mean > 1.0:",
        "A small lie about every token fails the audit.",
    ),
    Fault(
        "the audit shows what comes next",
        "runs/audit.py",
        "        asked[position + 1 :] = decoy\n",
        "        asked[position + 1 :] = asked[position + 1 :]\n",
        "A model that looks ahead fails the audit.",
    ),
    Fault(
        "a decoy begins with the truth",
        "runs/audit.py",
        "if len(decoy) and decoy[0] == true:",
        "if False:",
        "The token after an audited position is never the true one.",
    ),
    Fault(
        "a row answers for the row before",
        "runs/audit.py",
        "needed = {row, row + 1} if position == length - 1 else {row}",
        "needed = {row}",
        "No row of an audit holds the answer to another.",
    ),
    Fault(
        "an audit asks twice in a row",
        "runs/audit.py",
        "                blocked |= needed\n",
        "",
        "A process of the audit sees at most one position of a row.",
    ),
    Fault(
        "rows are scored in their order",
        "runs/score.py",
        ".permutation(len(rows.inputs))",
        ".permutation(1)[0] + np.arange(len(rows.inputs))",
        "The scorer gets the rows in random order.",
    ),
    Fault(
        "losses below zero count",
        "runs/score.py",
        "if counted.min() < -ROUNDING_NATS:",
        "if counted.min() < -1e9:",
        "A loss below zero is no score.",
    ),
    Fault(
        "the fixed files may change",
        "runs/score.py",
        "    checksums.verify(runner.night, runner.fixed)\n    rows = Rows.of(runner.night, split)\n",
        "    rows = Rows.of(runner.night, split)\n",
        "The pinned prepare.py is verified before every score.",
    ),
    Fault(
        "scoring may take an hour",
        "runs/score.py",
        "return min(max(LEAST_LIMIT_S, LIMIT_FACTOR * usual_s), usual_s + left_s + LEAST_LIMIT_S)",
        "return FIRST_LIMIT_S",
        "Scoring gets little more time than attempt 0's took.",
    ),
    Fault(
        "weights of any size are scored",
        "runs/score.py",
        "if most_bytes is None or run.weights_bytes is None or run.weights_bytes <= most_bytes:",
        "if True:",
        "Weights that could hold the text are not scored.",
    ),
    Fault(
        "a slow machine is not noticed",
        "runs/train.py",
        "MOST_LOST = 0.20",
        "MOST_LOST = 0.90",
        "A run that the machine has slowed is made again.",
    ),
    # ---- the sandbox -------------------------------------------------------------------------------------------------
    Fault(
        "a box with the network",
        "sandbox/box.py",
        '"--unshare-net", ',
        "",
        "No network in a box.",
    ),
    Fault(
        "keys in the environment",
        "sandbox/environment.py",
        'SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")',
        'SECRET_WORDS = ("PASSWORD",)',
        "No keys in a box.",
    ),
    Fault(
        "validation text in a training box",
        "runs/runner.py",
        'TRAINING_TEXT = ("train.*",)',
        'TRAINING_TEXT = ("train.*", "validation.*")',
        "No validation text in a training box.",
    ),
    Fault(
        "hidden folders are shown",
        "sandbox/places.py",
        "if entry not in closed and (links or not entry.is_symlink())]",
        "if links or not entry.is_symlink()]",
        "What a box hides is hidden inside of visible folders, too.",
    ),
    Fault(
        "a script outlives its harness",
        "sandbox/keeper.py",
        "return os.getppid() == order.harness",
        "return True",
        "No process outlives its night.",
    ),
    Fault(
        "files of any size",
        "sandbox/keeper.py",
        "        limit(resource.RLIMIT_FSIZE, limits.file_bytes)\n",
        "",
        "A script cannot fill the disk with one file.",
    ),
    Fault(
        "memory without a limit",
        "sandbox/watch.py",
        "if used > most:",
        "if used > 1000 * most:",
        "A script that takes too much memory is ended.",
    ),
    Fault(
        "processes without a limit",
        "sandbox/watch.py",
        "for name, count, most in allowed if count > most)",
        "for name, count, most in allowed if count > 1000 * most)",
        "A script that forks without end is ended.",
    ),
    Fault(
        "the budget is the script's own",
        "sandbox/process.py",
        "elif watch.elapsed_s > limit_s:",
        "elif watch.elapsed_s > limit_s + 3600:",
        "The harness owns the clock.",
    ),
    Fault(
        "escapes reach the terminal",
        "sandbox/process.py",
        "harmless(line) for line in text",
        "line for line in text",
        "What a script prints cannot steer the terminal.",
    ),
    Fault(
        "notes in the kernel's keyrings",
        "sandbox/seccomp.py",
        "add_key            248  217  refuse",
        "add_key            248  217  allow",
        "A run leaves no note to a later one in the kernel.",
    ),
    # ---- judges ------------------------------------------------------------------------------------------------------
    Fault(
        "a script may ignore its seed",
        "judging/judges.py",
        "if len(distinct_scores(attempt)) < len(attempt.scores_bpb):",
        "if False:",
        "A script that ignores its seed is discarded.",
    ),
    Fault(
        "edits of a revoked script are judged",
        "judging/judges.py",
        "if parent.val_bpb is None or not is_believed(parent.decision):",
        "if parent.val_bpb is None:",
        "An edit of a script whose scores do not count is no keep.",
    ),
    Fault(
        "strict errs ten times as often",
        "judging/judges.py",
        "(runs < 3 or luck > self.error)",
        "(runs < 3 or luck > 10 * self.error)",
        "strict: at most 0.5 false keeps among 100 edits without effect.",
    ),
    Fault(
        "nothing is revoked",
        "judging/judges.py",
        "        if revoked:\n",
        "        if False:\n",
        "A lucky keep is found out by its children.",
    ),
    Fault(
        "outliers are discoveries",
        "judging/belief.py",
        "OUTLIERS, WIDER = 0.03, 3.5",
        "OUTLIERS, WIDER = 0.0, 1.0",
        "One lucky run does not pass for a discovery.",
    ),
    Fault(
        "miracles are believed",
        "judging/failures.py",
        "if gain > plausible:",
        "if gain > 10 * plausible:",
        "A gain that is too good is put into quarantine.",
    ),
    # ---- git ---------------------------------------------------------------------------------------------------------
    Fault(
        "a branch that others moved is overwritten",
        "git.py",
        "if now not in (None, old):",
        "if False:",
        "A branch that somebody else has moved is left alone.",
    ),
    Fault(
        "a resumed commit is another one",
        "git.py",
        ', "GIT_COMMITTER_DATE": when}',
        "}",
        "The same attempt gives the same commit after a kill.",
    ),
    Fault(
        "an executable script loses its mode",
        "git.py",
        '"100755" if is_executable else "100644"',
        '"100644"',
        "A commit changes the script's text alone.",
    ),
    Fault(
        "a hook's repository is written",
        "git.py",
        'if name.startswith("GIT_") and name not in OF_THE_USER]',
        'if name == "GIT_TRACE"]',
        "The user's index is never touched.",
    ),
    # ---- dials and merges --------------------------------------------------------------------------------------------
    Fault(
        "another device's preset is set",
        "script/dials.py",
        "if keyword.arg == device_kind:",
        "if keyword.arg:",
        "A dial is set for this device alone.",
    ),
    Fault(
        "a range in log may hold zero",
        "script/dials.py",
        " or (log and (low <= 0 or number < 0)):",
        ":",
        "A range that cannot be searched is refused.",
    ),
    Fault(
        "two dials of one line are mixed up",
        "script/dials.py",
        "key=lambda place: (place[1].lineno, place[1].col_offset), reverse=True)",
        "key=lambda place: (place[1].lineno, place[1].col_offset))",
        "Every other character of a script stays.",
    ),
    Fault(
        "both turned a dial",
        "script/merge.py",
        "but=frozenset() if overrule else turned)",
        "but=frozenset())",
        "A dial that both sides have turned is a conflict.",
    ),
    Fault(
        "an edit that cannot be taken out",
        "script/merge.py",
        "if merge_lines(text, after, before) != script:",
        "if False:",
        "What is carried over can be taken out again alone.",
    ),
    # ---- workers -----------------------------------------------------------------------------------------------------
    Fault(
        "a node writes any file",
        "pools/ray_pool.py",
        "if other := sent.keys() - files_of(runner, job).keys():",
        "if other := set():",
        "The answer of a node reaches the files of its job alone.",
    ),
    Fault(
        "a node's file goes through a link",
        "pools/node.py",
        "    if not _is_file(at):\n",
        "    if False:\n",
        "No file of a node is written through what a script has left.",
    ),
    Fault(
        "two workers share a core",
        "pools/node.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "The threads of one core belong to one worker.",
    ),
    # ---- the queue ---------------------------------------------------------------------------------------------------
    Fault(
        "an entry is tried twice",
        "proposers/queue.py",
        "if number is not None:",
        "if False:",
        "An entry of the queue is tried once.",
    ),
    Fault(
        "ideas that were paid for are lost by a kill",
        "night/ideas.py",
        "list(context.journal.waiting_ideas())",
        "list(context.journal.waiting_ideas()[:0])",
        "An idea that was paid for is tried after a kill.",
    ),
)


# ---- planting --------------------------------------------------------------------------------------------------------


def copied(tree: Path, to: Path) -> Path:
    """Copy the working tree: what git tracks, and new files that it does not ignore."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=tree, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (tree / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, to / name)
    return to


def failing(tree: Path, tests: Sequence[str]) -> str | None:
    """Run these tests in a tree, README's where there are none, and return the first that fails or has no end."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}  # a stale .pyc would hide a fault
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    if len(tests) == 1 and ".py" in tests[0]:
        command += ["-n", "0"]
    try:
        done = subprocess.run(
            command, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S:.0f} s"
    if done.returncode not in (0, 1, 2):  # 2: a module of tests cannot be read, as with a fault that ends imports
        raise measure.Failed(f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr[-500:]}")
    named = re.search(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout)
    return None if done.returncode == 0 else named[1] if named else done.stdout[-200:]


def found_by(tree: Path, fault: Fault, text: str, tests: Sequence[str]) -> str | None:
    """Return the first test that fails while the fault is planted; raise Failed if it fails without it, too."""
    path = tree / "agent" / fault.file
    honest = path.read_text()
    path.write_text(text)
    broken = failing(tree, tests)
    path.write_text(honest)
    if broken and "::" in broken and failing(tree, [broken]):
        raise measure.Failed(f"{broken} fails without any fault: repair it, since such tests find nothing")
    return broken


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    names = args.only or [fault.name for fault in FAULTS]
    if unknown := set(names) - {fault.name for fault in FAULTS}:
        raise measure.Misuse(f"--only {min(unknown)!r}: there is no fault of this name")
    faults = [fault for fault in FAULTS if fault.name in names]
    planted = {fault: fault.planted(measure.ROOT) for fault in faults}
    flat: measure.Flat = {"planted": len(planted)}
    if args.quick:
        return flat
    tree, missed = copied(measure.ROOT, folder / "tree"), list[Fault]()
    for fault, text in planted.items():
        began = time.monotonic()
        named = [args.tests] if args.tests else [fault.tests, ROOMS[fault.room]]
        there = [[path for path in tests if (tree / path).exists()] for tests in named]
        rounds = [()] if args.suite else filter(None, there)
        by = next(filter(None, (found_by(tree, fault, text, tests) for tests in rounds)), None)
        key, seconds = fault.name.replace(" ", "_"), time.monotonic() - began
        flat |= {f"{key}_found": int(by is not None), f"{key}_by": by, f"{key}_s": seconds}
        missed += [] if by else [fault]
        measure.say(f"{'found' if by else 'MISSED':>6}  {seconds:4.0f} s  {fault.name}, by {by}")
    flat |= {"found": len(faults) - len(missed), "missed": len(missed)}
    return flat | {"missed_names": "; ".join(fault.name for fault in missed)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tests", nargs="+", metavar="PATH", help="these tests instead of those of each fault's room")
    which.add_argument("--suite", action="store_true", help="all tests that README's command runs")


PROGRAM = measure.Program(
    __doc__ or "",
    compare,
    lambda args, flat: measure.print_list(
        "Planted faults", {k: v for k, v in flat.items() if not k.endswith(("_s", "_found"))}
    ),
    add_options,
    falls_short=lambda args, flat: bool(flat.get("missed")),
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
