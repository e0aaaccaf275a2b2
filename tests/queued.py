"""A queue, what is put in it, a script to patch, and known ideas."""

import difflib
from pathlib import Path

from judged import decided
from samples import NIGHT

from agent.experiment import Attempt, Proposal, Status, packed
from agent.proposers.proposer import Briefing
from agent.proposers.queue import submit, waiting
from agent.script.dials import outline_of

SCRIPT = """\
LR = 0.04
DEPTH = 4
WIDTH = 64


def main():
    return LR


def load_model(path):
    return DEPTH * WIDTH
"""
NOW = "2026-11-21T23:00:00Z"
HEADER = {
    "Title": "Try something",
    "Why": "It may help.",
    "Source": "a paper, arXiv:0000.00000",
    "Reported": "1 % less",
    "Group": "optimizer",
    "Gain": "cuda 1.0, metal 1.0, cpu 1.0",
}


def put(folder: Path, text: str, message: str = "an idea\nbecause", script: str = "train_mlx.py") -> Path:
    return submit(folder, text, message, script=script, now=NOW)


def patch(before: str, after: str, name: str = "train_mlx.py", a: str = "a/", b: str = "b/") -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"{a}{name}", f"{b}{name}", lineterm="")
    return "\n".join(lines) + "\n"


def tried(number: int, edit: str | Proposal, proposer: str = "queue", status: Status = Status.DISCARD) -> Attempt:
    proposal = edit if isinstance(edit, Proposal) else Proposal("", "", proposer, packed=packed(edit))
    outline = outline_of(proposal.script, "cpu")
    return Attempt(number, 0 if number else None, proposal, NOW, "c", (), (decided(status, ""),), True, outline=outline)


def brief(*edits: str | Proposal, best: int = 0, **more: object) -> Briefing:
    """Attempts with these edits, those up to the best one kept."""
    history = [
        tried(number, edit, "queue" if number else "you", Status.KEEP if number <= best else Status.DISCARD)
        for number, edit in enumerate(edits)
    ]
    return Briefing(NIGHT, history, history[best], **more)


def aside(folder: Path, where: str) -> dict[str, str]:
    return {path.stem: path.with_suffix(".txt").read_text().strip() for path in waiting(folder / where)}


def write_idea(folder: Path, name: str, before: str, after: str, **header: str) -> Path:
    """Write the idea that makes `after` of `before` into a folder of ideas."""
    lines = (text.splitlines(keepends=True) for text in (before, after))
    patch = "".join(difflib.unified_diff(*lines, "a/train_mlx.py", "b/train_mlx.py"))
    fields = "".join(f"{field}: {value}\n" for field, value in (HEADER | header).items())
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.patch"
    file.write_text(f"{fields}\n{patch}")
    return file
