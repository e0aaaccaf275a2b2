"""Imports only fall: from a folder to lower ones, and never in a circle. A new file needs no entry here."""

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The rooms of the harness, the lowest first. A file of one imports from its own room and from those before it.
ROOMS = (
    "agent",  # the nouns, errors and small tools that all others use
    "agent.git",
    "agent.script",
    "agent.sandbox",
    "agent.judging",
    "agent.records",
    "agent.records.ledger",
    "agent.archive",
    "agent.runs",
    "agent.pools",
    "agent.pools.cluster",
    "agent.proposers.search",
    "agent.proposers.author",
    "agent.proposers.llm",
    "agent.proposers.command",
    "agent.proposers.catalogue",
    "agent.proposers",
    "agent.view.facts",
    "agent.view.charts.parts",
    "agent.view.charts",
    "agent.view.live",
    "agent.view.export",
    "agent.view.page",
    "agent.view.serve",
    "agent.view",
    "agent.profile",
    "agent.night",
    "agent.model",
    "agent.tries",
    "agent.mcp",
    "agent.cli.words",
    "agent.cli.reading",
    "agent.cli.taking",
    "agent.cli.housekeeping",
    "agent.cli.machine",
    "agent.cli",
)
MAIN = "agent.__main__"  # the door, above all rooms
OF_THE_SCRIPT = {"agent", "mlx", "numpy", "prepare"}  # all that train_mlx.py imports, beside Python's own


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SOURCES = (*ROOT.glob("*.py"), *(ROOT / "agent").rglob("*.py"))
FILES = {module_name(path): path for path in SOURCES}


def room_of(module: str) -> str:
    return module if module in ROOMS else module.rpartition(".")[0]


def imports(module: str) -> Iterator[str]:
    """The modules of this project that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module in FILES:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from parts & FILES.keys() or {node.module}


HARNESS = sorted(name for name in FILES if name.split(".")[0] == "agent" and name != MAIN)


def test_every_folder_of_the_harness_has_its_floor():
    assert {room_of(name) for name in HARNESS} == set(ROOMS)


@pytest.mark.parametrize("name", HARNESS)
def test_a_file_imports_from_its_own_room_and_from_lower_ones(name):
    floor = ROOMS.index(room_of(name))
    used = {other for other in imports(name) if other.split(".")[0] == "agent"}
    assert [other for other in sorted(used) if other == MAIN or ROOMS.index(room_of(other)) > floor] == []


def test_the_readme_lists_the_folders_in_this_order():
    told = re.findall(r"^\| `(agent.*)(?:/|\.py)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert told == list(dict.fromkeys("/".join(room.split(".")[:2]) for room in ROOMS))


def test_no_files_import_each_other_in_a_circle():
    graph = {name: set(imports(name)) - {name} for name in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_the_harness_never_imports_the_training_script():
    assert [name for name in HARNESS if "train_mlx" in set(imports(name))] == []


def test_the_training_script_imports_the_fixed_part_and_nothing_else():
    tree = ast.parse(FILES["train_mlx"].read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in found} - sys.stdlib_module_names <= OF_THE_SCRIPT


def test_no_class_of_the_harness_shares_its_name_with_another_or_with_a_type_alias():
    classes: set[str] = set()
    places: dict[str, list[str]] = {}
    for name in HARNESS:
        for node in ast.parse(FILES[name].read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes.add(node.name.lstrip("_"))
                places.setdefault(node.name.lstrip("_"), []).append(name)
            elif isinstance(node, ast.Assign):
                for alias in (target.id for target in node.targets if isinstance(target, ast.Name)):
                    places.setdefault(alias, []).append(name)
    assert {name: places[name] for name in sorted(classes) if len(places[name]) > 1} == {}
