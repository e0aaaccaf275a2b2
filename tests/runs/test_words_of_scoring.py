"""What a process prints that has read the validation text stays in its log: no proposer reads a word of it anywhere."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from nights import Grounds, make_repository, unigram

from agent.lab.data import evaluation_rows, load_data
from agent.proposers.proposer import Left
from agent.records.journal import Journal
from agent.records.place import Place, read_night
from agent.view.page import live_of, page
from agent.work import Doing, Work

QUICK = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off")
SCORER, AUDITOR, HOLDOUT = SECRETS = ("of the scorer: Ishmael", "of the auditor: Ahab", "of the holdout: Queequeg")


def leaking(secret: str, where: str, **dials: object) -> str:
    """A script that prints a secret, which is not in its own text, where it is loaded to be scored."""
    said = f"bytes.fromhex({secret.encode().hex()!r}).decode()"
    says = f"def load_model(path):\n    if {where}:\n        print({said})\n        raise ValueError({said})\n"
    return unigram(**dials).replace("def load_model(", f"{says}    return loads(path)\n\n\ndef loads(")


@pytest.fixture(scope="module")
def leaks(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[tuple[Grounds, list[str]]]:
    """Return what a night said whose scorer, auditor and, in the confirmation, scorer of the holdout told a secret."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("words") / "user", unigram()))
    corpus = load_data(tiny_data, verify=False)
    rows, _ = evaluation_rows(corpus.split("holdout"), corpus.bos, corpus.seq_len)
    is_holdout = f"(Path('inputs.npy').exists() and int(np.load('inputs.npy').sum()) == {rows[::4].sum()})"
    scripts = (
        leaking(SCORER, "True", SHARPNESS=0.8),
        leaking(AUDITOR, "Path('positions.npy').exists()", SHARPNESS=0.7),
        leaking(HOLDOUT, is_holdout, SHARPNESS=0.9),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        for number, script in enumerate(scripts):
            edit = grounds.root.parent / f"{number}.py"
            edit.write_text(script)
            assert grounds.nightshift("try", "--queue", "--edit", str(edit), "-m", f"edit {number}").returncode == 0
        said = [ran(grounds, "run", "--proposer", "queue", "--experiments", "3", "--tag", "t", *QUICK)]
        said += [grounds.nightshift("confirm", "t", "--runs", "2")]  # revokes the last keep
        yield grounds, [text for done in said for text in (done.stdout, done.stderr)]


def ran(grounds: Grounds, *words: str) -> "CompletedProcess[str]":
    done = grounds.nightshift(*words)
    assert done.returncode == 0, (words, done.stderr)
    return done


def test_each_has_failed_by_its_secret_which_a_person_finds_in_its_log(leaks):
    grounds, _ = leaks
    _, scored, audited, confirmed = grounds.attempts("t")
    assert [run.score.val_bpb for run in scored.runs] == [None]
    assert not audited.runs[0].score.audit.passed
    assert [run.holdout.val_bpb for run in confirmed.runs if run.holdout][:1] == [None]
    for number, secret in enumerate(SECRETS, 1):
        assert secret in ran(grounds, "show", str(number)).stdout  # people may read it


READ = [
    ("status",), ("results",), ("nights",), ("prompt",), ("prompt", "--facts"), ("ideas",),
    ("show", "1", "--log"), ("show", "3", "--log"), ("show", "1", "--script"), ("show", "2", "--diff"),
    ("show", "1", "2"), ("show", "2", "0"), ("show", "0", "3"),
]  # fmt: skip


def test_no_command_says_a_word_of_it(leaks):
    grounds, said = leaks
    texts = {"the night": "".join(said)}
    for words in READ:
        for more in ((), ("--json",)):
            done = ran(grounds, *words, *more)
            texts[" ".join((*words, *more))] = done.stdout + done.stderr
    for number in "123":
        texts[f"show {number} --json"] = ran(grounds, "show", number, "--json").stdout
    assert json.loads(texts["show 1 --json"])["attempt"]["decisions"][0]["reason"].startswith("scoring: exit code 1;")
    assert [name for name, text in texts.items() if any(secret in text for secret in SECRETS)] == []


def test_no_file_of_the_repository_or_of_an_export_holds_a_word_of_it(leaks, tmp_path):
    grounds, _ = leaks
    ran(grounds, "export", "record", "t", "--out", str(tmp_path / "record"))
    ran(grounds, "report", "t", "--out", str(tmp_path / "page.html"))
    logs = shutil.ignore_patterns("*.score", "*.audit", ".git")
    shutil.copytree(grounds.root, tmp_path / "user", ignore=logs)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    contents[Path("commits")] = grounds.git("log", "--all", "-p").encode()
    assert {"results.tsv", "journal.sqlite", "page.html"} <= {path.name for path in files}
    assert [path for path, text in contents.items() if any(secret.encode() in text for secret in SECRETS)] == []


def test_the_live_page_shows_no_line_of_a_scoring_that_goes_on(leaks):
    grounds, _ = leaks
    place = Place.of(grounds.root / "train_mlx.py")
    night, work = read_night(place, "t"), Work("local", Doing.SCORING, 1, "2026-11-27T00:00:00Z", 0)
    with Journal.resume(place.journal("t")) as journal:
        journal.begin(work)
        live = live_of(place, night, Left(), 1.0)
        journal.rest(work.worker)
    assert [job["doing"] for job in live.jobs] == ["scoring, seed 0"]
    assert not any(secret in page(night, live=live) for secret in SECRETS)
