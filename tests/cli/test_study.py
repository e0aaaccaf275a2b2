"""A study from its plan to its answer, over real runs: what it makes, what it tells, and what a kill leaves of it."""

import hashlib
import json
import re
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import samples
from commands import refused
from nights import BROKEN, SCRIPTS, Grounds, make_repository, unigram
from samples import NIGHT, enter

from agent.experiment import Kind, Noise
from agent.judging.studies import in_drawn_order
from agent.judging.study_plan import read_plan
from agent.records.journal import Journal
from agent.records.place import Place

PLAN = """\
question = "Is a sharper unigram better?"
margin = 0.002
seeds = 2
budget_s = 0.05
others = ["params"]

[[arm]]
name = "plain"

[[arm]]
name = "sharper"
why = "A higher power of the frequencies is nearer to them."
dials = {SHARPNESS = 0.9}

[[arm]]
name = "broken"
script = "broken.py"

[[arm]]
name = "weightless"
script = "weightless.py"

[[hypothesis]]
name = "H1"
says = "A sharper one is better by 0.01 at least."
falsified_if = ["sharper < 0.01"]
"""
TWO_ARMS = PLAN.partition('[[arm]]\nname = "broken"')[0]


@pytest.fixture(autouse=True)
def _tiny_corpus(monkeypatch: pytest.MonkeyPatch, tiny_data: Path) -> None:
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))


def grounds_with(folder: Path, plan: str) -> Grounds:
    grounds = Grounds(make_repository(folder, unigram(JITTER=0.002)))
    (grounds.root / "sharp.toml").write_text(plan)
    (grounds.root / "broken.py").write_text(BROKEN)
    shutil.copy(SCRIPTS / "weightless.py", grounds.root)
    return grounds


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Grounds:
    """A study of four arms, of which two fail, at its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds = grounds_with(tmp_path_factory.mktemp("study") / "user", PLAN)
        done = grounds.nightshift("study", "sharp.toml")
        assert done.returncode == 0, done.stdout + done.stderr
    return grounds


def test_every_arm_has_every_seed_in_blocks_and_a_failing_one_rests(study):
    runs = sorted(
        (run.began or "", attempt.title, run.seed) for attempt in study.attempts("sharp") for run in attempt.done_runs
    )
    blocks = [[(title, seed) for _, title, seed in runs[:4]], [(title, seed) for _, title, seed in runs[4:]]]
    assert sorted(blocks[0]) == [(name, 0) for name in ("broken", "plain", "sharper", "weightless")]
    assert sorted(blocks[1]) == [("plain", 1), ("sharper", 1)]
    kinds = {attempt.title: attempt.kind for attempt in study.attempts("sharp")}
    assert kinds["plain"] is Kind.BASELINE
    assert kinds["sharper"] is Kind.MEASURED
    assert kinds["broken"] is kinds["weightless"] is Kind.CRASHED


def test_results_tell_of_every_seed_of_an_arm(study):
    seeds = {row["description"]: row["seeds"] for row in study.rows() if row["tag"] == "sharp"}
    assert (seeds["plain"], seeds["sharper"]) == ("2", "2")


def test_each_run_that_counts_is_audited_and_its_weights_are_dropped(study):
    for attempt in study.attempts("sharp"):
        if attempt.kind is Kind.MEASURED:
            assert all(run.score and run.score.audit and run.score.audit.passed for run in attempt.done_runs)
            assert not list(study.folder("sharp").glob(f"runs/{attempt.number:04d}/*/out/model.safetensors"))


def test_the_plan_is_committed_and_its_hash_stands_in_the_journal(study):
    assert study.git("show", "refs/experiments/sharp/plan:sharp.toml") == PLAN.strip()
    with Journal.read(study.folder("sharp") / "journal.sqlite") as journal:
        kept = journal.night().options.study
        scripts = {attempt.title: attempt.proposal.script for attempt in journal.attempts()}
    assert kept is not None
    arms = [[arm.name, scripts[arm.name]] for arm in read_plan(PLAN).arms]
    assert kept.sha256 == hashlib.sha256(json.dumps([PLAN, *arms]).encode()).hexdigest()
    assert kept.sha256 in study.git("log", "-1", "--format=%B", "refs/experiments/sharp/plan")
    order = in_drawn_order(read_plan(PLAN).arms[1:], kept, 0)
    assert [attempt.title for attempt in study.attempts("sharp")][1:] == order
    assert study.git("status", "--porcelain", "--untracked-files=no") == ""


def test_the_answer_is_the_same_in_a_terminal_in_json_and_on_the_page(study):
    before = study.attempts("sharp")
    facts = json.loads(study.nightshift("study", "sharp.toml", "--json").stdout)
    found = facts["results"]
    by_name = {arm["name"]: arm for arm in found["arms"]}
    assert (facts["tag"], found["is_complete"], found["runs"]) == ("sharp", True, 6)
    assert by_name["sharper"]["gain"] > 0.05
    assert "no such width" in by_name["broken"]["fault"]
    said, page = study.nightshift("study", "sharp").stdout, study.folder("sharp") / "report.html"
    assert study.nightshift("report", "sharp").returncode == 0
    html = unescape(re.sub(r"\s+", " ", page.read_text()))
    for words in (found["question"], found["answer"], *found["deviations"], found["hypotheses"][0]["verdict"]):
        assert words in said
        assert words in html
    assert study.attempts("sharp") == before  # a study at its end makes no run


def test_status_tells_the_answer_of_a_study_and_what_to_see_next(study):
    said = study.nightshift("status", "sharp").stdout
    words, found = " ".join(said.split()), json.loads(study.nightshift("study", "sharp", "--json").stdout)["results"]
    assert found["answer"] in words
    for of_a_night in ("No idea has brought", "has not the lowest", "best val_bpb", "run --tag", "study PLAN"):
        assert of_a_night not in words
    assert "nightshift study sharp " in said
    assert "nightshift report sharp --open " in said


def test_an_edit_of_somebodys_own_goes_past_a_study(study):
    before = study.attempts("sharp")
    (study.root / "mine.py").write_text(unigram(JITTER=0.002, SHARPNESS=0.7))
    edit = ("-m", "my own edit", "--edit", "mine.py")
    for command in (("try", "--queue", "--tag", "sharp", *edit), ("run", "--drain", "--tag", "sharp")):
        assert "sharp is a study, which runs the arms of its plan alone; " in refused(study.nightshift(*command))
    assert study.nightshift("try", "--queue", *edit).returncode == 0
    (entry,) = (study.root / "experiments" / "queue").glob("*.patch")
    assert "For: " not in entry.read_text()
    entry.unlink()
    assert study.attempts("sharp") == before


@pytest.mark.slow
def test_a_changed_plan_is_another_study_and_says_all_that_was_changed(study):
    notes = [f"# note {number}" for number in range(30)]
    (study.root / "sharp.toml").write_text("\n".join([*notes, TWO_ARMS.replace("margin = 0.002", "margin = 0.5")]))
    (study.root / "train_mlx.py").write_text(unigram(JITTER=0.002, SMOOTHING=2.0))
    try:
        assert json.loads(study.nightshift("study", "sharp.toml", "--dry", "--json").stdout)["tag"] == "sharp-2"
        dry = " ".join(study.nightshift("study", "sharp.toml", "--dry").stdout.split())
        assert "post hoc, since runs of an earlier plan were seen: sharp: +margin = 0.5" in dry
        found = json.loads(study.nightshift("study", "sharp.toml", "--json").stdout)["results"]
    finally:
        (study.root / "sharp.toml").write_text(PLAN)
        (study.root / "train_mlx.py").write_text(unigram(JITTER=0.002))
    post_hoc = "post hoc, after runs of an earlier plan were seen: sharp: "
    changes = {words.removeprefix(post_hoc) for words in found["deviations"] if words.startswith(post_hoc)}
    assert {f"+{note}" for note in notes} | {"-margin = 0.002", "+margin = 0.5"} < changes
    assert {"the script of arm plain is another one", "the script of arm sharper is another one"} < changes
    assert len(study.attempts("sharp")) == 4


def test_a_kill_at_any_moment_loses_and_doubles_nothing(tmp_path):
    grounds, kills = grounds_with(tmp_path / "user", TWO_ARMS), 0
    journal = grounds.folder("sharp") / "journal.sqlite"
    for wait_s in (0.0, 0.3, 1.5, 3.0):  # after the journal is there: before the arms are, and in runs
        process = grounds.start("study", "sharp.toml")
        while process.poll() is None and not journal.exists():
            time.sleep(0.01)
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert "nightshift study PLAN " in grounds.nightshift("status", "sharp").stdout
    done = grounds.nightshift("study", "sharp.toml")
    assert done.returncode == 0, done.stderr
    attempts = grounds.attempts("sharp")
    assert [attempt.title for attempt in attempts] == ["plain", "sharper"]
    for attempt in attempts:
        assert Counter(run.seed for run in attempt.done_runs) == {0: 1, 1: 1}
    assert grounds.git("show", "refs/experiments/sharp/plan:sharp.toml") == TWO_ARMS.strip()
    assert kills > 1


def test_a_study_whose_baseline_crashes_with_a_later_seed_makes_no_further_run_and_is_over(tmp_path):
    grounds = grounds_with(tmp_path / "user", TWO_ARMS.replace("seeds = 2", "seeds = 4"))
    first = "    start = time.monotonic()\n"
    crashes = first + "    if options.seed == 1:\n        raise ValueError('no such seed')\n"
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=0.002).replace(first, crashes))
    for _ in range(2):
        found = json.loads(grounds.nightshift("study", "sharp.toml", "--json").stdout)["results"]
        assert found["is_complete"]
        assert any("arm plain is not compared: " in words for words in found["deviations"])
        assert {run.seed for attempt in grounds.attempts("sharp") for run in attempt.counted_runs} == {0, 1}


def test_the_noise_comes_from_a_night_of_the_same_score(tmp_path):
    grounds = grounds_with(tmp_path / "user", TWO_ARMS)
    place = Place.of(grounds.root / "train_mlx.py")
    device = json.loads(grounds.nightshift("study", "sharp.toml", "--dry", "--json").stdout)["device"]
    for day, (tag, metric) in enumerate({"own-numbers": "loss", "measured": None}.items(), 1):
        options, started = replace(NIGHT.options, metric=metric), f"2026-01-0{day}T03:04:05Z"
        night = replace(NIGHT, tag=tag, device=device, options=options, started=started)
        with Journal.create(place.journal(tag), night) as journal:
            enter(journal, samples.attempt(0, Kind.BASELINE, 1.5, "baseline", seeds=3, script=unigram()))
            journal.record_facts(noise=Noise(0.01, 3, 0.02))
    assert json.loads(grounds.nightshift("study", "sharp.toml", "--dry", "--json").stdout)["sigma_of"] == "measured"


def test_an_arm_imports_of_the_folder_what_the_first_arm_imports_and_that_what_the_script_imports(tmp_path):
    grounds = grounds_with(tmp_path / "user", TWO_ARMS)
    own = unigram(JITTER=0.002, SHARPNESS=0.7).replace("import prepare\n", "import helper\nimport prepare\n")
    (grounds.root / "helper.py").write_text("")
    (grounds.root / "own.py").write_text(own)
    first, second = 'name = "plain"', "dials = {SHARPNESS = 0.9}"
    for arm, line in ((first, 8), (second, 11)):
        added = 'script = "own.py"' if arm == second else f'{arm}\nscript = "own.py"'
        (grounds.root / "sharp.toml").write_text(TWO_ARMS.replace(arm, added))
        sentence = refused(grounds.nightshift("study", "sharp.toml", "--dry"))
        assert f"sharp.toml line {line}: arm " in sentence
        assert "imports helper; do without it" in sentence
    (grounds.root / "train_mlx.py").write_text(
        own.replace("SHARPNESS = 0.7", "SHARPNESS = 0.6")
    )  # which plain is as it stands
    assert grounds.nightshift("study", "sharp.toml", "--dry").returncode == 0


def test_what_is_wrong_with_an_arm_is_told_with_its_line_before_anything_is_made(tmp_path):
    grounds = grounds_with(tmp_path / "user", TWO_ARMS)
    for arm, words in (
        ('script = "gone.py"', "gone.py does not exist"),
        ('patches = ["gone.patch"]', "gone.patch does not exist"),
        ('idea = "no-such-idea"', "there is no idea no-such-idea"),
        ("dials = {SHARPNES = 0.9}", "no dial called SHARPNES"),
        ('dials = {SHARPNESS = "much"}', "SHARPNESS is 'much', and "),
        ("", "it is the script of arm plain again"),
    ):
        (grounds.root / "sharp.toml").write_text(TWO_ARMS.replace("dials = {SHARPNESS = 0.9}", arm))
        sentence = refused(grounds.nightshift("study", "sharp.toml"))
        assert words in sentence
        assert "sharp.toml line 11: arm sharper cannot be run: " in sentence
    assert refused(grounds.nightshift("study", "none.toml")).startswith("none.toml does not exist")
    assert not grounds.folder("sharp").exists()
    assert grounds.git("for-each-ref", "refs/experiments") == ""
