"""Imports only fall: a module imports only what lives on a lower floor, so there is no cycle and no surprise."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOOR = {
    # the fixed part, and the script that is edited
    "hardware": 0, "corpus": 0, "encode": 1, "prepare": 6, "train_mlx": 7,
    "kernels.windows": 0, "kernels.plain": 1, "kernels.cache": 1, "kernels.cuda": 2, "kernels.cpu": 2,
    "kernels.device": 3, "kernels.fused": 4, "kernels": 5,
    # programs that run in processes of their own
    "agent.keeper": 2, "agent.landlock": 1, "agent.scorer": 7, "agent.probe": 7, "agent.profiler": 8,
    # the harness: what holds a process
    "agent": 0, "agent.errors": 0, "agent.experiment": 0, "agent.environment": 0, "agent.caps": 0, "agent.cgroup": 0,
    "agent.clock": 0, "agent.plain_text": 0, "agent.seatbelt": 0, "agent.seccomp": 0, "agent.box": 2,
    "agent.process": 3, "agent.workshop": 4, "agent.installed": 0, "agent.throwaway": 1, "agent.counters": 0,
    "agent.load": 0,
    # what a night knows and decides
    "agent.proposers": 0, "agent.failures": 1, "agent.dials": 1, "agent.contract": 1, "agent.stop": 1,
    "agent.audit": 1, "agent.belief": 0, "agent.noise": 1, "agent.simplicity": 2, "agent.judge": 3,
    "agent.confirmation": 5, "agent.remembered": 0, "agent.weights": 1, "agent.lab": 6, "agent.curve": 0,
    "agent.shell": 0, "agent.answer": 1, "agent.terms": 4, "agent.intervals": 0, "agent.morning": 6, "agent.pace": 1,
    "agent.pins": 1, "agent.repo": 2, "agent.journal": 2, "agent.ledger": 2, "agent.lock": 2, "agent.screen": 2,
    "agent.fit": 2, "agent.proposers.space": 2, "agent.proposers.surrogate": 0, "agent.proposers.search": 4,
    "agent.recorder": 2, "agent.table": 1, "agent.run": 5, "agent.opening": 5, "agent.report": 8,
    # sources of ideas, and what steers them
    "agent.proposers.checked": 3, "agent.proposers.mix": 3, "agent.proposers.patch": 6, "agent.notes": 5,
    "agent.proposers.queue": 7, "agent.proposers.desk": 6, "agent.proposers.command": 7, "agent.submission": 7,
    "agent.prompt": 2, "agent.reply": 2, "agent.proposers.endpoint": 1, "agent.proposers.chat": 3,
    "agent.proposers.dialects": 4, "agent.proposers.llm": 6,
    # the trusted score reads the corpus through prepare
    "agent.score": 7, "agent.dry_run": 8, "agent.steps": 9, "agent.streak": 10, "agent.night": 11,
    "agent.phases": 8, "agent.doctor": 8,
    # the command line
    "agent.proposers.given": 1, "agent.options": 6, "agent.dawn": 12, "agent.plot": 13, "agent.sources": 11,
    "agent.repeat": 7, "agent.wiring": 12, "agent.reading": 14, "agent.__main__": 15,
}  # fmt: skip


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SOURCES = (*ROOT.glob("*.py"), *(ROOT / "agent").rglob("*.py"), *(ROOT / "kernels").glob("*.py"))
FILES = {module_name(path): path for path in SOURCES}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module in PACKAGES else [node.module]
            )


PACKAGES = {"agent", "agent.proposers", "kernels"}


def test_every_module_has_a_floor():
    assert set(FILES) == set(FLOOR)


@pytest.mark.parametrize("name", sorted(FILES))
def test_imports_only_fall(name):
    above = [dep for dep in imports(FILES[name]) if FLOOR.get(dep, -1) >= FLOOR[name]]
    assert above == []


def test_the_harness_never_imports_the_training_script():
    assert [name for name, path in FILES.items() if "train_mlx" in set(imports(path))] == []
