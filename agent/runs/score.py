"""Score a run's weights from outside: sandboxed processes commit to losses, the harness computes the score.

A scorer runs the script's own code, so its numbers are not trusted by themselves. It commits to one loss for every
token of the validation text; bits per byte are computed here. Before an attempt is kept, a second process without any
knowledge of the first has to confirm a sample of these losses (agent/runs/audit.py).

Such a process has read the validation text, and could print it for the next script to store. So its output stays in its
log: results and messages say how the process ended in the harness's own words.
"""

import math
import os
import secrets
import shutil
import statistics
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from agent.experiment import MEASURED, Audit, Ending, History, Night, Run, Score, Split, is_first_look
from agent.files import read_end
from agent.judging.failures import process_failure
from agent.lab.data import evaluation_rows, load_data
from agent.runs import audit as auditing
from agent.runs.fixed import verify_pins
from agent.runs.jobs import AuditRun, Job, Measure
from agent.runs.runner import WEIGHTS, Runner, beside
from agent.sandbox.process import Outcome
from agent.work import Progress

# A forward pass over fixed rows takes seconds on a GPU and under a minute on two CPU cores: after an hour it hangs. An
# honest model may be three times as slow as attempt 0's, and reading MLX again from a slow disk takes about 20 s.
FIRST_LIMIT_S, LEAST_LIMIT_S, LIMIT_FACTOR = 3600.0, 20.0, 3.0
WEIGHTS_FACTOR, LEAST_WEIGHTS_BYTES = 16, 256 << 20  # 16 times attempt 0's size: larger weights could store text
SCORER = Path(__file__).with_name("scorer.py")
ADVICE = "look at load_model, the shapes and the values of its logits"
SCORING = Progress(fraction=1.0, is_scoring=True)
ROUNDING_NATS = 1e-3  # a loss is a lie where it is further below zero than this
# In a first look, scoring and auditing by all of the text would take a CPU longer than training. So every fourth row is
# scored, and one process audits; it is another protocol (agent/runs/fixed.py).
FIRST_LOOK_ROW_STEP = 4


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The evaluation rows of one split: every token after the first is a target once."""

    inputs: npt.NDArray[np.uint16]  # (R, T)
    targets: npt.NDArray[np.uint16]  # (R, T)
    token_bytes: npt.NDArray[np.int32]  # (V,)

    @classmethod
    def of(cls, night: Night, split: Split = "validation") -> "Rows":
        """Read the rows of a split that this night scores: all of them, or every fourth in a first look."""
        corpus = load_data(Path(night.data), verify=False)  # the checksums were verified at the start
        inputs, targets = evaluation_rows(corpus.split(split), corpus.bos, corpus.seq_len)
        step = (
            FIRST_LOOK_ROW_STEP if is_first_look(night.budget_s) else 1
        )  # the rows of a first look are from all documents
        return cls(inputs[::step].astype(np.uint16), targets[::step].astype(np.uint16), corpus.token_bytes)

    @classmethod
    def of_training(cls, night: Night, count: int) -> "Rows":
        """Read the first rows of the training text."""
        corpus = load_data(Path(night.data), verify=False)
        line = np.array(corpus.split("train").tokens[: count * corpus.seq_len + 1], np.uint16)
        inputs, targets = (part.reshape(count, corpus.seq_len) for part in (line[:-1], line[1:]))
        return cls(inputs, targets, corpus.token_bytes)

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Return where the target has bytes (R, T); BOS has none."""
        return self.token_bytes[self.targets] > 0

    def bits_per_byte(self, losses: npt.NDArray[np.float32]) -> float:
        """Return the bits per byte of losses (R, T) in nats; each byte counts once."""
        nats = float(losses[self.counted].sum(dtype=np.float64))
        return nats / (math.log(2) * int(self.token_bytes[self.targets].sum(dtype=np.int64)))


class Unscored(Exception):
    """Say why a sandboxed process has left no numbers that can be used; `quoting` its last line as well."""

    def __init__(self, why: str, wall_s: float, overran: bool = False, quoting: str | None = None) -> None:
        super().__init__(why)
        self.wall_s, self.overran, self.quoting = wall_s, overran, quoting or why


def usual_scoring_s(history: History) -> float | None:
    """Return the median time of scoring attempt 0's runs, on the text that takes longer; None before it was scored."""
    runs = history[0].counted_runs
    splits = ([run.score for run in runs], [run.holdout for run in runs])
    times_s = ([score.wall_s for score in split if score and score.val_bpb is not None] for split in splits)
    return max((statistics.median(split_s) for split_s in times_s if split_s), default=None)


def scoring_limit_s(usual_s: float | None, beyond_s: float, allowance_s: float) -> float:
    """Return the time limit of a process that scores or audits an attempt, in seconds; usual_s: attempt 0's time.

    The process runs the script's own code, which could go on training there. It gets three times the usual time, as an
    honest model may be larger. Time beyond the usual counts against the run's allowance, of which training used
    beyond_s: both together stay within allowance_s plus LEAST_LIMIT_S, which a slow disk may need. Attempt 0 is the
    user's own script, and gets an hour (None).
    """
    if usual_s is None:
        return FIRST_LIMIT_S
    left_s = max(0.0, allowance_s - max(0.0, beyond_s))
    return min(max(LEAST_LIMIT_S, LIMIT_FACTOR * usual_s), usual_s + left_s + LEAST_LIMIT_S)


def most_weights_bytes(history: History) -> int | None:
    """Return the size above which weights are not scored, by attempt 0's; None before it has any."""
    sizes = [run.weights_bytes for run in history[0].done_runs if run.weights_bytes is not None]
    return max(LEAST_WEIGHTS_BYTES, WEIGHTS_FACTOR * max(sizes)) if sizes else None


def too_heavy(run: Run, most_bytes: int | None) -> str | None:
    """Return why a run's weights are too large to be scored; None if they are not."""
    if most_bytes is None or run.weights_bytes is None or run.weights_bytes <= most_bytes:
        return None
    return f"its weights have {run.weights_bytes / 1e6:,.0f} MB: more than {most_bytes / 1e6:,.0f} MB are not scored"


def score(runner: Runner, job: Measure, limit_s: float, split: Split = "validation") -> Score:
    """Score the weights of a finished run, and keep the committed losses beside its folder.

    Raise Stopped if the user stopped it in the middle, MachineError if a pinned file has changed.
    """
    verify_pins(runner.night, runner.fixed)
    rows, folder = Rows.of(runner.night, split), runner.run_folder(job.attempt, job.seed)
    try:
        losses, wall_s = committed_losses(runner, job, folder, limit_s, rows)
    except Unscored as why:
        return Score(None, why.wall_s, str(why), overran=why.overran)
    with runner.losses(job.attempt, job.seed, split).open("wb") as file:
        losses.tofile(file)
        file.flush()
        os.fsync(file.fileno())  # the losses must be on the disk before the journal has their score
    return Score(rows.bits_per_byte(losses), wall_s)


def committed_losses(
    runner: Runner, job: Job, run_folder: Path, limit_s: float, rows: Rows
) -> tuple[npt.NDArray[np.float32], float]:
    """Return the losses (R, T) of these rows in nats by a sandboxed process, and its seconds.

    It gets the rows in random order. Raise Unscored, and Stopped.
    """
    order = np.random.default_rng(secrets.randbits(128)).permutation(len(rows.inputs))
    work = {"inputs": rows.inputs[order], "targets": rows.targets[order]}
    shuffled, wall_s = _ask(runner, job, run_folder, "losses", limit_s, work, rows.inputs.shape)
    losses = np.empty_like(shuffled)
    losses[order] = shuffled
    least = losses[rows.counted].min()
    if least < -ROUNDING_NATS:
        raise Unscored(f"a loss of {least:.3g} nats is below zero", wall_s)
    val_bpb = rows.bits_per_byte(losses)
    if not MEASURED[0] <= val_bpb <= MEASURED[1]:  # also refuses NaN
        raise Unscored(f"val_bpb {val_bpb:.3g} is no score", wall_s)
    return losses, wall_s


def audit(runner: Runner, job: AuditRun) -> Audit:
    """Audit committed losses with fresh processes.

    Raise Stopped if the user stopped it in the middle, MachineError if a pinned file has changed.
    """
    verify_pins(runner.night, runner.fixed)
    rows, rng = Rows.of(runner.night, job.split), np.random.default_rng(secrets.randbits(128))
    committed = read_committed(runner.losses(job.attempt, job.seed, job.split), rows)
    if committed is None:
        return Audit(0, 0.0, 0.0, "the committed losses are gone")
    train = load_data(Path(runner.night.data), verify=False).split("train").tokens
    reference = read_committed(runner.losses(*job.reference, job.split), rows) if job.reference else None
    if reference is None:
        reference = auditing.unigram_losses(train, rows.targets, rows.vocab_size)
    processes = 1 if is_first_look(runner.night.budget_s) else auditing.MOST_PROCESSES
    samples = auditing.draw(committed, reference, rows.counted, rows.vocab_size, rng, processes)
    folder, answers, spent_s = runner.run_folder(job.attempt, job.seed), [], 0.0
    for sample in samples:
        inputs, positions = auditing.questions(sample, rows.inputs, rows.targets, train, rng)
        work, shape = {"inputs": inputs, "positions": positions}, (len(inputs), rows.vocab_size)
        try:
            logits, wall_s = _ask(runner, job, folder, "logits", job.limit_s, work, shape)
        except Unscored as why:
            failure, spent_s = f"it could not be done: {why}", spent_s + why.wall_s
            return Audit(len(inputs), 0.0, spent_s, failure, why.overran)
        answers.append(logits)
        spent_s += wall_s
    return auditing.compare(samples, answers, committed, rows.targets, spent_s)


def _ask(
    runner: Runner,
    job: Job,
    run_folder: Path,
    mode: Literal["losses", "logits"],
    limit_s: float,
    work: Mapping[str, npt.NDArray[np.generic]],  # file name → array: the input of the scorer
    shape: tuple[int, ...],
) -> tuple[npt.NDArray[np.float32], float]:
    """Run the scorer on a run's weights in a sandbox; return its numbers and seconds. Raise Unscored, Stopped."""
    folder, weights = beside(run_folder, "score" if mode == "losses" else "audit"), run_folder / WEIGHTS
    command = [sys.executable, SCORER.name, mode, runner.script_name, str(weights)]

    def once() -> Outcome:
        runner.lay_out(folder, job.script)
        shutil.copyfile(SCORER, folder / SCORER.name)
        for name, array in work.items():
            np.save(folder / f"{name}.npy", array)
        return runner.call(command, folder, limit_s, weights, progress=lambda: SCORING)

    outcome, content = runner.until_it_counts(job.attempt, once), b""
    with suppress(OSError):  # a link or a pipe in its place, say
        content = read_end(folder, f"{mode}.f32", 4 * math.prod(shape) + 1)  # raw floats, without a header to parse
    runner.keep_only(folder)
    failure = process_failure(outcome, quotes=False)
    if failure is not None:
        why, quoting = f"scoring: {failure}; {ADVICE}", f"scoring: {process_failure(outcome)}"
        raise Unscored(why, outcome.wall_s, outcome.ending is Ending.OVERRAN, quoting)
    if len(content) != 4 * math.prod(shape):
        numbers = f"{math.prod(shape):,} numbers are due"
        raise Unscored(f"scoring left no {mode}.f32 of the right size: {numbers}", outcome.wall_s)
    return np.frombuffer(content, np.float32).reshape(shape), outcome.wall_s


def read_committed(path: Path, rows: Rows) -> npt.NDArray[np.float32] | None:
    """Read committed losses (R, T) in nats; None if the file is missing or has another size."""
    try:
        return np.fromfile(path, np.float32).reshape(rows.inputs.shape)
    except (OSError, ValueError):
        return None
