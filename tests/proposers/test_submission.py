"""What `nightshift try` takes into the queue: a script, or a patch as diff and git write it, that changes something."""

import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import refused
from nights import git, unigram
from queued import SCRIPT, patch

from agent.errors import ScriptError
from agent.proposers.queue import check_submission
from agent.records.place import Place
from agent.script.merge import apply_patch

BETTER = unigram(SHARPNESS=0.9)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A repository whose script lies in a folder, which is where the user stands; the edited copy lies above all."""
    (tmp_path / "user/lab").mkdir(parents=True)
    (tmp_path / "user/lab/train_mlx.py").write_text(SCRIPT)
    (tmp_path / "idea.py").write_text(SCRIPT.replace("LR = 0.04", "LR = 0.02"))
    for command in ("init -q", "add .", "-c user.name=A -c user.email=a@example.org commit -qm start"):
        git(tmp_path / "user", *command.split())
    monkeypatch.chdir(tmp_path / "user/lab")
    return Place.of(Path("train_mlx.py"))


def submitted(place: Place, command: str) -> str:
    """What a shell's diff becomes, as the script that a night tries."""
    written = subprocess.run(command, shell=True, capture_output=True, check=False).stdout
    file = place.repo.root.parent / "idea.patch"
    file.write_bytes(written)
    check_submission(file.read_text(), file, place, place, ())
    return apply_patch(file.read_text(), place.script, [(0, SCRIPT)])


@pytest.mark.parametrize(
    "command",
    [
        "diff -u train_mlx.py ../../idea.py",
        "diff -u --label a/lab/train_mlx.py --label b/lab/train_mlx.py train_mlx.py ../../idea.py",
        "cp ../../idea.py train_mlx.py && git diff; git checkout -q train_mlx.py",
        "diff -u train_mlx.py ../../idea.py | sed 's/$/\\r/'",
        "echo 'A word before it.'; diff -u train_mlx.py ../../idea.py",
    ],
)
def test_a_diff_whose_old_side_is_the_script_is_an_edit_of_it(place, command):
    assert submitted(place, command) == SCRIPT.replace("LR = 0.04", "LR = 0.02")


@pytest.mark.parametrize(
    "command",
    [
        "diff -u ../../idea.py train_mlx.py | sed 's/train_mlx/other/'",
        "diff -u train_mlx.py ../../idea.py; diff -u ../../idea.py train_mlx.py",
        "diff -u train_mlx.py /dev/null",
    ],
)
def test_a_diff_of_something_else_is_not(place, command):
    with pytest.raises(ScriptError, match=r"may edit lab/train_mlx.py and nothing else"):
        submitted(place, command)


def test_an_edit_that_waits_already_is_refused_at_once_whatever_form_it_has(grounds, tmp_path):
    def submit(name: str, text: str) -> CompletedProcess:
        (tmp_path / name).write_text(text)
        return grounds.nightshift("try", "--queue", "--edit", str(tmp_path / name), "-m", "sharper\nTheir counts.")

    assert submit("first.py", BETTER).returncode == 0
    for name, text in {"again.py": f"{BETTER}\n# a word\n", "again.patch": patch(unigram(), BETTER)}.items():
        sentence = f"{tmp_path / name} waits already (sharper); change something first, or follow that one with: "
        assert refused(submit(name, text)) == f"{sentence}nightshift try --wait t0001"


def test_an_import_beyond_the_rule_is_refused_at_once_by_every_command(grounds, tmp_path):
    edit = tmp_path / "idea.py"
    edit.write_text(unigram(SHARPNESS=0.9).replace("import json\n", "import json\nimport requests\n"))
    sentence = "line 5 imports requests; do without it: a script may import mlx, numpy, the standard library, prepare"
    assert f"{edit} {sentence}" in refused(grounds.nightshift("try", "--queue", "--edit", str(edit), "-m", "a"))
    diff = patch((grounds.root / "train_mlx.py").read_text(), edit.read_text())
    edit.with_suffix(".patch").write_text(diff)
    words = ("try", "--queue", "--edit", str(edit.with_suffix(".patch")), "-m", "a")
    assert f"train_mlx.py {sentence}" in refused(grounds.nightshift(*words))
    (grounds.root / "train_mlx.py").write_text(edit.read_text())
    for command in (("try", "-m", "a"), ("run",), ("ideas",)):
        assert f"train_mlx.py {sentence}" in refused(grounds.nightshift(*command))
    for command in ("doctor", "init"):
        assert f"train_mlx.py {sentence}" in grounds.nightshift(command).stdout
    assert grounds.git("status", "--porcelain", "experiments") == ""


def test_a_module_beside_the_script_belongs_to_each_edit_where_attempt_0_imports_it(grounds, monkeypatch):
    monkeypatch.setattr("agent.night.proposals.WAITS_S", ())
    for name in ("helper", "other"):
        (grounds.root / f"{name}.py").write_text("SHARPER = 0.4\n")
    script = f"import helper\n{unigram()}"
    (grounds.root / "train_mlx.py").write_text(script)
    edits = [script.replace("= by_device(cpu=0.5", f"= by_device(cpu={name}.SHARPER") for name in ("helper", "other")]
    said = grounds.try_scripts("t", [edits[0], f"import other\n{edits[1]}"]).sentences
    assert [attempt.status for attempt in grounds.attempts("t")] == ["keep", "discard"]
    assert any("line 1 imports other; do without it" in sentence for sentence in said)
