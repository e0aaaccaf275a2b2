"""A first contact: `init` makes a folder where a night can begin, and touches nothing that is somebody's own."""

import subprocess
from pathlib import Path

import psutil
import pytest
from commands import nothing_yet, refused, wait_until
from nights import PROJECT, Grounds, command, environment, git

from agent.invocation import OWN

OURS = {
    *OWN, "ideas/README.md", ".gitignore",
    "AGENTS.md", ".agents/skills/nightshift/SKILL.md", ".claude/skills/nightshift/SKILL.md",
}  # fmt: skip


@pytest.fixture
def empty(tmp_path, own_cache):
    (tmp_path / "empty").mkdir()
    return Grounds(tmp_path / "empty")


def init(folder: Grounds, *words: str, **env: str) -> str:
    done = folder.nightshift("init", *words, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def committed(root: Path) -> set[str]:
    return set(git(root, "ls-tree", "-r", "--name-only", "HEAD").splitlines())


def test_in_an_empty_folder_the_refused_run_names_init_and_after_it_a_night_can_begin(empty):
    assert refused(empty.nightshift("run")).endswith("or begin with nightshift's own: nightshift init")
    assert "  first commit, of nightshift's files alone: Begin" in init(empty)
    assert committed(empty.root) == OURS == set(contents(empty.root))
    assert empty.git("status", "--porcelain") == ""
    for name in OURS - {".gitignore", "AGENTS.md", "ideas/README.md"}:
        assert (empty.root / name).read_bytes() == (PROJECT / name).read_bytes()
    assert "no night has run here yet" in nothing_yet(empty.nightshift("status"))
    assert "train_mlx.py changes nothing that runs in the script as it was committed" in refused(
        empty.nightshift("try", "-m", "what")
    )


def test_a_call_that_was_killed_is_repeated(empty):
    first = subprocess.Popen(command("init"), cwd=empty.root, env=environment(), stdout=subprocess.DEVNULL)
    wait_until((empty.root / "prepare.py").exists)
    first.kill()
    first.wait()
    # a git that it had begun goes on, and may not have locked its index yet
    wait_until(lambda: str(empty.root) not in [process.info["cwd"] for process in psutil.process_iter(["cwd"])])
    init(empty)
    assert committed(empty.root) == OURS == set(contents(empty.root))
    assert empty.git("status", "--porcelain") == ""
    before = contents(empty.root), empty.git("rev-parse", "HEAD")
    said = init(empty)  # a second call changes nothing
    assert said.startswith(f"{empty.root} has all that a night needs\n  nothing was changed\nnext:\n")
    assert (contents(empty.root), empty.git("rev-parse", "HEAD")) == before


def test_files_of_a_user_are_neither_changed_nor_committed(empty):
    own = dict.fromkeys(("train_mlx.py", "notes.txt", "staged.txt"), "mine\n") | {".gitignore": "*.pyc"}
    own["prepare.py"] = f"{(PROJECT / 'prepare.py').read_text()}# and mine\n"
    empty.git("init", "-q")
    for name, text in own.items():
        (empty.root / name).write_text(text)
    empty.git("add", "staged.txt")
    said = init(empty)
    assert said.startswith(
        f"{empty.root} is not ready for a night yet: train_mlx.py breaks the contract: define main()"
    )
    assert "  first commit, of nightshift's files alone: Begin" in said
    assert "  lines added: .gitignore\n  left as they are: train_mlx.py, prepare.py\n" in said
    assert committed(empty.root) == OURS - own.keys()
    assert {name: (empty.root / name).read_text() for name in own if name != ".gitignore"} | own == own
    ignore = (empty.root / ".gitignore").read_text().splitlines()
    assert ignore[0] == "*.pyc"
    assert "experiments/nights/" in ignore
    others = (".gitignore", "notes.txt", "prepare.py", "train_mlx.py")
    assert empty.git("status", "--porcelain").splitlines() == ["A  staged.txt", *(f"?? {name}" for name in others)]
    assert "git add train_mlx.py prepare.py .gitignore && git commit -m start" in said


def test_in_a_repository_with_commits_the_line_that_commits_is_printed_and_works(empty):
    empty.git("init", "-q")
    empty.git("commit", "-q", "--allow-empty", "-m", "mine")
    said = init(empty, "a night's")
    assert f"\n  git repository: {empty.root}\n" in said
    inner = Grounds(empty.root / "a night's")
    assert empty.git("log", "--format=%s") == "mine"
    assert not (inner.root / ".git").exists()
    lines = [line.strip() for line in said.partition("next:\n")[2].splitlines()]
    assert lines[0].startswith("cd ")
    assert lines[1].startswith("git add train_mlx.py ")
    author = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b"
    subprocess.run("\n".join(["set -e", author, *lines[:2]]), shell=True, cwd=empty.root, check=True)
    assert committed(empty.root) == {f"a night's/{name}" for name in OURS}
    assert "git add" not in init(inner)
    assert "no night has run here yet" in nothing_yet(inner.nightshift("status"))


def test_a_home_folder_does_not_become_a_repository_as_a_whole(empty):
    said = refused(empty.nightshift("init", HOME=str(empty.root)))
    assert "would become a git repository as a whole; name a folder, as in: nightshift init night" in said
    assert list(empty.root.iterdir()) == []
    assert "  first commit" in init(empty, "night", HOME=str(empty.root))


@pytest.mark.parametrize("name", ["ideas", ".gitignore"])
def test_nothing_is_written_through_a_link(empty, tmp_path, name):
    outside = tmp_path / "outside"
    outside.write_text("the user's\n") if name == ".gitignore" else outside.mkdir()
    (empty.root / name).parent.mkdir(exist_ok=True)
    (empty.root / name).symlink_to(outside)
    refusal = refused(empty.nightshift("init"))
    assert refusal.startswith(
        f"{empty.root / name} is a link to {outside}, and init writes through none; remove it, or"
    )
    assert contents(empty.root).keys() <= {name}
    assert not (empty.root / ".git").exists()
    assert outside.read_text() == "the user's\n" if name == ".gitignore" else not [*outside.iterdir()]


def test_a_script_of_ones_own_gets_a_program_and_is_told_what_is_understood_of_it(tmp_path):
    (tmp_path / "bench.py").write_text('LR = 0.1\nname = "--seed"\nprint(f"accuracy: {LR}")\n')
    grounds = Grounds(tmp_path)
    done = grounds.nightshift("init", "--script", "bench.py", "--metric", "-accuracy")
    assert done.returncode == 0, done.stderr
    for words in ("accuracy, higher is better", "told one by --seed", "--limit-s", "LR", "--metric=-accuracy"):
        assert words in done.stdout
    assert "report a higher `accuracy`" in (tmp_path / "program.md").read_text()
    assert grounds.git("ls-files", "--with-tree=HEAD") == "bench.py"
    (tmp_path / "program.md").write_text("mine")
    assert grounds.nightshift("init", "--script", "bench.py", "--metric", "-accuracy").returncode == 0
    assert (tmp_path / "program.md").read_text() == "mine"
    assert not (tmp_path / "prepare.py").exists()
    (tmp_path / "bench.py").write_text("print('accuracy: 1')\n")
    done = grounds.nightshift("init", "--script", "bench.py", "--metric", "-accuracy")
    assert "nightshift try --queue --script bench.py --metric=-accuracy --edit FILE" in done.stdout  # no dial to turn


@pytest.mark.parametrize("words", [("--metric", "a: b"), ("--metric", "x", "--script", "none.py")])
def test_what_is_no_script_and_no_number_leaves_nothing_behind(tmp_path, words):
    assert Grounds(tmp_path).nightshift("init", *words).returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--script", "bench.py"), "add --metric NAME, or leave it out for nightshift's own"),
        (("night", "--script", "bench.py"), "add --metric NAME"),
        (("night", "--metric", "x"), "name the script: --script night/train_mlx.py"),
        (("night", "--metric", "x", "--script", "night/bench.py"), "leave the folder out"),
    ],
)
def test_a_folder_for_nightshifts_script_and_a_script_of_ones_own_exclude_each_other(tmp_path, words, remedy):
    (tmp_path / "bench.py").write_text("print('x: 1')\n")
    assert remedy in refused(Grounds(tmp_path).nightshift("init", *words))
    assert [path.name for path in tmp_path.iterdir()] == ["bench.py"]
