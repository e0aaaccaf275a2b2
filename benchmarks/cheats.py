"""Can a script fake its score, or break out? Every trick that we know, against the real sandbox, scorer and audit.

    python benchmarks/cheats.py [--quick] [--json FILE] [--only NAME ...] [--sandbox NAME] [--processes N]

It tries every sandbox that this machine has, or the one that is named. The scripts are in tests/cheats: those in
caught/ try to cheat, those in honest/ only look odd. Each is an attempt of a real night, in a small world where a user
has a repository, keys, a server and better weights from another night (tests/arena.py). A cheat is caught when it was
not kept and had no effect: nothing was sent, read, changed, left running or left behind. An honest script passes when
it was scored and its audit agrees. Those in known/ are expected to get through: each says why, and what bounds it. With
--sandbox off one can see that the tricks do work where nothing holds them: use it on a machine that may come to harm.

LISTED names what one sandbox cannot close. Exit code 1 when another cheat got through or another honest script was
refused, and when one that is listed was not. Flat keys of --json, each with the sandbox before it: cheats, through;
honest, refused; known, known_through; ok.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import measure
from arena import CHEATS, HONEST, KNOWN, Script, Trial, try_all, world
from conftest import TEST_SCALE
from measure import CORES, Count, Folder

from agent.runs.score import FIRST_LOOK_ROW_STEP
from agent.sandbox.sandboxes import Sandbox, candidates, choose, why_unfit

# one of each mechanism: what an audit may dislike, and what is kept before a cheat is judged; peeking, lying, notes,
# processes, keys, network, disk, files, log, memory
QUICK = (
    "mixes_experts", "calls_the_compiler", "uses_processes",
    "peeks_at_2_percent", "lies_in_cross_entropy", "shaves_a_hundredth", "leaves_a_note_in_files",
    "leaves_a_note_with_a_daemon", "survives", "reaches_for_the_harness", "forks_without_end",
    "reads_keys", "phones_home", "writes_outside", "links_to_better_weights",
    "fills_the_disk_with_small_files", "floods_the_log", "eats_memory", "trains_on_while_loading",
)  # fmt: skip
EVERY = {script.name: script for script in (*CHEATS, *KNOWN, *HONEST)}
FOLDERS = {  # folder of tests/cheats → what is said of a script that ends as it should, and of one that does not
    "caught": ("caught", "GOT THROUGH"),
    "honest": ("passed", "REFUSED"),
    "known": ("discarded", "gets through"),
}
# sandbox → cheats that get through, and honest scripts that are refused, there only; and why
LISTED = {"landlock": {"uses_processes": "semaphores are files in /dev/shm, which only a mount could make a run's own"}}


def verdict(trial: Trial, listed: Mapping[str, str]) -> str:
    """Return in a word what became of a trial, in capitals where that was not expected."""
    good, bad = FOLDERS[trial.script.folder]
    is_good = trial.is_kept if trial.script.folder == "honest" else trial.is_caught
    if trial.script.name in listed:
        return "LISTED IN VAIN" if is_good else "as listed"
    return good if is_good else bad


def say_result(listed: Mapping[str, str], trial: Trial) -> None:
    word = verdict(trial, listed)
    why = listed.get(trial.script.name, "; ".join((*trial.effects, trial.reason)))
    note = f": {trial.script.tries} {why}" if word.isupper() else f": {trial.how}"
    measure.say(f"{word:>12}  {trial.script.name}, {trial.seconds:.1f} s{note}")


def figures(trials: Sequence[Trial], scripts: Sequence[Script], listed: Mapping[str, str]) -> dict[str, int]:
    """Sum up the trials of one sandbox; ok: all of the scripts were tried, and each ended as it should."""
    caught, honest, known = ([trial for trial in trials if trial.script.folder == folder] for folder in FOLDERS)
    as_expected = not any(verdict(trial, listed).isupper() for trial in trials)
    return {
        "cheats": len(caught),
        "through": sum(not trial.is_caught for trial in caught),
        "honest": len(honest),
        "refused": sum(not trial.is_kept for trial in honest),
        "known": len(known),
        "known_through": sum(not trial.is_caught for trial in known),
        "ok": int(len(trials) == len(scripts) and as_expected),
    }


def tried(sandbox: str, names: Sequence[str], folder: Path, data: Path) -> list[Trial]:
    """Try some scripts in a sandbox, in one night of a world of its own."""
    with world(folder, data) as here:
        return try_all(
            here,
            measure.chosen(EVERY, names),
            sandboxes_of(sandbox)[sandbox],
            partial(say_result, LISTED.get(sandbox, {})),
        )


@measure.program(lambda flat: not all(figure for key, figure in flat.items() if key.endswith("_ok")), only=QUICK)
def main(
    *,
    folder: Folder,
    only: Sequence[str] = (),
    sandbox: Literal["all", "bubblewrap", "landlock", "seatbelt", "off"] = "all",
    processes: Count = CORES,
) -> measure.Flat:
    """Run every script in every sandbox.

    Args:
        only: these scripts of tests/cheats
        sandbox: which sandbox holds the scripts; off shows that the tricks work where nothing does
        processes: scripts at the same time
    """
    scripts, sandboxes = measure.chosen(EVERY, only), sandboxes_of(sandbox)
    if not sandboxes:
        raise measure.Misuse(f"--sandbox {sandbox}: this machine has no such sandbox; name another")
    # This many rows in a first look are enough for an audit of 256 positions.
    scale = dataclasses.replace(TEST_SCALE, eval_tokens=FIRST_LOOK_ROW_STEP * TEST_SCALE.eval_tokens)
    data = measure.make_corpus(folder / "corpus", scale, chars=3_000_000)
    # The machine's shared memory is one number: what one of these frees hides what another one takes.
    alone = [script.name for script in scripts if script.name.startswith("hoards_")]
    others = [script.name for script in scripts if script.name not in alone]
    shares = {f"{at}": others[at::processes] for at in range(min(processes, len(others)))}
    measure.say(f"{len(scripts)} scripts in: {', '.join(sandbox.name for sandbox in sandboxes.values())}")
    hoards = [(sandbox, alone, folder / sandbox / "alone", data) for sandbox in sandboxes if alone]
    jobs = [
        (sandbox, names, folder / sandbox / share, data) for sandbox in sandboxes for share, names in shares.items()
    ]
    nights = measure.in_parallel(1, tried, hoards) + measure.in_parallel(processes, tried, jobs)
    jobs = hoards + jobs
    flat: measure.Flat = {}
    for name in sandboxes:
        trials = [trial for job, night in zip(jobs, nights, strict=True) if job[0] == name for trial in night]
        flat |= {f"{name}_{key}": count for key, count in figures(trials, scripts, LISTED.get(name, {})).items()}
    return flat


def sandboxes_of(name: str) -> dict[str, Sandbox]:
    """Return sandboxes by their names in LISTED."""
    if name == "off":
        return {name: choose("off")}
    working = [sandbox for sandbox in candidates()[::-1] if why_unfit(sandbox) is None]  # the strongest of a kind last
    sandboxes = {type(sandbox).__name__.lower(): sandbox for sandbox in working}
    return {own: sandbox for own, sandbox in sandboxes.items() if name in ("all", own)}


if __name__ == "__main__":
    raise SystemExit(main())
