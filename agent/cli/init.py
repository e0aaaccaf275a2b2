"""Make a folder ready for a night: nightshift init."""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from agent.cli.any_script import prepare
from agent.cli.options import Metric, UserPath
from agent.errors import NightError, ScriptError
from agent.files import home_folder, read_plain, write_plain
from agent.git import Repo, repo_around
from agent.invocation import IDEAS, OWN, PACKAGE, SCRIPT, SKILL, STARTER, typed
from agent.records.place import Place, read_script
from agent.script.contract import PREPARE, fixed_files
from agent.view.screen import print_folded, print_lines, print_next

IGNORE = ".gitignore"
IGNORED = ("__pycache__/", ".venv/", "experiments/nights/", "*.before-take")
SKILLS = (SKILL, SKILL.replace(".agents", ".claude"))  # places where Codex and Claude Code look
MESSAGE = "Begin with the script of nightshift"


def init(folder: UserPath = Path(), /, *, script: UserPath | None = None, metric: Metric = None) -> None:
    """Prepare a folder for nights.

    It gets nightshift's script with the files that the script needs, and a git repository with a first commit if there
    is none. Existing files stay as they are, except that .gitignore gets the lines that it lacks. In a repository with
    commits, nothing is committed. Give the command again if it was killed.

    With --metric, a script of your own gets a program.md beside it, and nothing of nightshift's.

    Args:
        folder: the folder, which is made if it is missing (default: this one)
        script: a script of your own, with --metric (default: train_mlx.py)
        metric: the number that it reports itself, as NAME, or as -NAME where higher is better
    """
    if metric is not None:
        if folder != Path():
            raise NightError(
                f"{folder} would get nightshift's own script, and --metric is about one of yours; leave the folder "
                f"out, and name the script: --script {folder / SCRIPT}"
            )
        prepare(script or Path(SCRIPT), metric)
        return
    if script is not None:
        raise NightError(
            f"--script {script} is for a script that reports its own score; add --metric NAME, or leave it out for "
            f"nightshift's own"
        )
    folder = folder.resolve()
    texts = _texts()
    _check_links(folder, texts)
    if os.path.lexists(folder / PREPARE):
        fixed_files(folder, "")  # refuses a prepare.py of another project
    if not folder.exists():
        folder.mkdir(parents=True)
    repo, _ = repo_around(folder)
    if repo is None:
        if folder in (home_folder(), Path(folder.anchor)):
            named = typed("init", "night")
            raise NightError(f"{folder} would become a git repository as a whole; name a folder, as in: {named}")
        repo = Repo.begin(folder)
    root = repo.root.resolve()

    written = [name for name in texts if not os.path.lexists(folder / name)]
    for name in written:
        write_plain(folder / name, texts[name])
    has_more = _ignore(folder / IGNORE) and IGNORE not in written
    # a user's own
    kept = [name for name, text in texts.items() if read_plain(path := folder / name) != text or path.is_symlink()]
    in_repo = {name: (folder / name).relative_to(root).as_posix() for name in texts}
    is_first = repo.find("HEAD") is None
    if is_first:
        repo.commit_first({in_repo[name]: text for name, text in texts.items() if name not in kept}, MESSAGE)
    committed = repo.git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")

    print_lines([f"{folder} {_readiness(Place(repo, in_repo[SCRIPT]))}"])
    changes = {
        "git repository": "" if root == folder else str(root),
        "first commit, of nightshift's files alone": MESSAGE if is_first else "",
        "written": ", ".join(_short(written)),
        "lines added": IGNORE if has_more else "",
        "left as they are": ", ".join(name for name in kept if name != IGNORE),
    }
    print_folded([f"  {change}: {value}" for change, value in changes.items() if value] or ["  nothing was changed"])
    next_commands = {
        typed("doctor", folder=folder): "is everything here that a night needs?",
        typed("run", "--experiments", "3", "--budget-s", "10", folder=folder): "a first look: minutes, no key, no data",
        typed("run", folder=folder): "five-minute experiments until you stop it",
    }
    print_next(next_commands, _first(folder, [name for name, path in in_repo.items() if path not in committed]))


def _readiness(place: Place) -> str:
    """Say whether a script, which may be a user's own, keeps the contract."""
    try:
        fixed_files(place.script_path.parent, read_script(place))
    except ScriptError as error:
        return f"is not ready for a night yet: {error}"
    return "has all that a night needs"


def _texts() -> dict[str, str]:
    """Return the files that a night needs: the script, prepare.py, and what a user may steer a night by.

    The catalogue stays where nightshift is installed: a copy would hide the ideas of later versions.
    """
    own = {name: (STARTER / name).read_text(encoding="utf-8") for name in OWN}
    readme = (PACKAGE / IDEAS / "README.md").read_text(encoding="utf-8")
    skill = (STARTER / SKILL).read_text(encoding="utf-8")
    ignore = {IGNORE: "".join(f"{line}\n" for line in IGNORED)}
    return {**own, f"{IDEAS}/README.md": readme, "AGENTS.md": text_of(skill), **dict.fromkeys(SKILLS, skill), **ignore}


def text_of(skill: str) -> str:
    """Return the text of a skill, without the header by which agents choose it."""
    return skill.split("---\n", 2)[2].lstrip("\n")


def _check_links(folder: Path, names: Iterable[str]) -> None:
    """Raise NightError where a file would be written through a link: it may lead out of the folder."""
    above = {path for name in names for path in (folder / name).parents if path.is_relative_to(folder)} - {folder}
    for path in (*sorted(above), folder / IGNORE):
        if path.is_symlink():
            raise NightError(
                f"{path} is a link to {path.readlink()}, and init writes through none; remove it, or begin in another "
                f"folder: {typed('init', 'night')}"
            )


def _ignore(path: Path) -> bool:
    """Have git ignore what nights and Python make; return whether lines were added to a file that is a user's own."""
    before = read_plain(path)
    missing = [line for line in IGNORED if line not in before.splitlines()]
    if missing:
        begun = before if before.endswith("\n") or not before else f"{before}\n"
        write_plain(path, begun + "".join(f"{line}\n" for line in missing))
    return bool(missing)


def _short(names: Iterable[str]) -> list[str]:
    """Name the folders of files in folders, once each."""
    return list(dict.fromkeys(f"{name.partition('/')[0]}/" if "/" in name else name for name in names))


def _first(folder: Path, uncommitted: list[str]) -> Iterable[str]:
    """Return the commands that lead into the folder and commit its files, where these have to be given."""
    if folder != Path.cwd():
        yield f"cd {shlex.quote(str(folder))}"
    if SCRIPT in uncommitted:  # then `try` has nothing to compare an edit with
        yield f"git add {shlex.join(_short(uncommitted))} && git commit -m start"
