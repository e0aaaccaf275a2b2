"""The best script of a night can be looked at, written to a file, and taken away as a whole model."""

import dataclasses
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import nothing_yet, refused
from nights import Grounds, command, environment, make_repository, unigram

from agent.experiment import Dawn, Noise, Proposal
from agent.files import PREFIX
from agent.judging.findings import Findings
from agent.judging.intervals import Interval
from agent.judging.noise import noise
from agent.model.best_script import BestScript, interval_words
from agent.model.folder import model_card, write_folder
from agent.model.weights import KeptWeights, weights_of
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import read_night

FIRST, KEPT = (unigram(SHARPNESS=sharpness) for sharpness in (0.5, 0.9))


@pytest.fixture(scope="module")
def kept_night(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Grounds]:
    """Make a night of two attempts; the second is its best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds = Grounds(make_repository(tmp_path_factory.mktemp("kept") / "user", FIRST))
        grounds.try_scripts("t", [KEPT])
        yield grounds


@pytest.fixture
def night(kept_night: Grounds, tmp_path: Path) -> Grounds:
    """A copy, to be spoilt."""
    shutil.copytree(kept_night.root, tmp_path / "user")
    return Grounds(tmp_path / "user")


def place_of(night: Grounds) -> Place:
    return Place.of(night.root / "train_mlx.py")


def best_of(night: Grounds) -> BestScript:
    return BestScript.of(read_night(place_of(night), "t"))


def kept_weights(night: Grounds) -> KeptWeights:
    return weights_of(place_of(night), "t", 1)


def write_model(night: Grounds, folder: Path) -> str:
    """Write the model and return its card."""
    done = night.nightshift("best", "--weights", str(folder))
    assert done.returncode == 0, done.stderr
    return (folder / "README.md").read_text()


def weights(night: Grounds, number: int) -> Path:
    return night.folder("t") / "runs" / f"{number:04d}" / "seed0" / "out" / "model.safetensors"


def test_best_says_which_script_it_is_how_good_and_how_to_check_it_out(kept_night):
    done = kept_night.nightshift("best")
    assert done.returncode == 0, done.stderr
    facts = {line[:12].strip(): line[12:] for line in done.stdout.splitlines()}
    first, best = (attempt.val_bpb for attempt in kept_night.attempts("t")[:2])
    assert facts["best"] == "#1 of night t: script 1"
    assert facts["val_bpb"].startswith(f"{best:.6f}")
    assert facts["gain"].startswith(f"{first - best:.6f}")
    assert facts["honest gain"].startswith("not measured")
    assert facts["weights"] == str(weights(kept_night, 1))
    assert kept_night.git("show", f"{facts['ref']}:train_mlx.py") == KEPT.strip()
    assert kept_night.git("rev-parse", facts["branch"]) == facts["commit"]


def test_the_command_that_best_prints_brings_the_script(night):
    words = next(line[12:] for line in night.nightshift("best").stdout.splitlines() if line.startswith("take it"))
    assert night.nightshift(*words.removeprefix("nightshift ").split()).returncode == 0
    assert (night.root / "train_mlx.py").read_text() == KEPT


def test_an_interval_is_given_once_the_noise_is_known(kept_night):
    known = best_of(kept_night)
    assert known.gain is not None
    assert interval_words(known.gain) == f"{known.gain.mean_bpb:.6f}"
    several = dataclasses.replace(known, facts=dataclasses.replace(known.facts, noise=Noise(0.01, 3, 0.03)))
    assert several.gain.high_bpb - several.gain.mean_bpb == pytest.approx(1.96 * 0.01 * 2**0.5)
    assert several.score.high_bpb - several.score.val_bpb == pytest.approx(1.96 * 0.01)
    assert interval_words(several.gain).endswith("]")


def test_the_script_is_written_as_it_was_committed_and_over_no_other_file(night):
    assert night.nightshift("best", "--script", "best.py").returncode == 0
    assert (night.root / "best.py").read_bytes() == KEPT.encode()
    assert "exists" in refused(night.nightshift("best", "--script", "train_mlx.py"))
    assert "no folder" in refused(night.nightshift("best", "--script", "gone/best.py"))


def test_a_model_is_written_whole_and_again_over_itself(night, tmp_path):
    folder = tmp_path / "model"
    for _ in range(2):
        done = night.nightshift("best", "--weights", str(folder))
        assert done.returncode == 0, done.stderr
        assert (folder / "train_mlx.py").read_bytes() == KEPT.encode()
        assert (folder / "model.safetensors").read_bytes() == weights(night, 1).read_bytes()
        assert sorted(json.loads((folder / "config.json").read_text())["nightshift"]["files"]) == sorted(
            path.name for path in folder.iterdir()
        )
    assert [path.name for path in tmp_path.iterdir() if "model" in path.name] == ["model"]


def test_the_card_says_what_the_model_is_and_how_good(kept_night, tmp_path):
    card, attempt = write_model(kept_night, tmp_path / "model"), best_of(kept_night).attempt
    assert f"| these weights (seed 0) | {attempt.val_bpb:.6f} |" in card
    assert f"`{attempt.commit}`" in card
    assert "| `SHARPNESS` | 0.9 | 0.5 |" in card
    assert "| `SMOOTHING` | 1.0 |  |" in card
    assert "not confirmed on fresh seeds" in card
    assert "no script ran with two" in card
    assert "/" not in card.partition("| corpus |")[2].partition("\n")[0], "the card must not tell the owner's folders"


def test_words_of_a_model_are_plain_text_in_the_card(kept_night):
    known = best_of(kept_night)
    hostile = "<script>x</script> [a](https://b.example) ![](c) `d` **e** | f\x1b[2J\n# g"
    attempt = dataclasses.replace(known.attempt, proposal=Proposal("", hostile, hostile, hostile))
    known = dataclasses.replace(known, attempt=attempt)
    script = KEPT.replace('NOTE = "unigram"  # not searched', 'NOTE = "`x` | y"  # {"`x` | y", "z"}')
    assert script != KEPT
    splits = {"train": {"tokens": 1, "bytes": 1}}
    manifest = {"dataset": "stdlib", "scale": "tiny", "splits": splits, "vocab_size": 512, "seq_len": 64}
    card = model_card(known, kept_weights(kept_night), script, KEPT, manifest)
    assert r"| `NOTE` | '\`x\` \| y' |" in card
    assert "<script>" not in card
    assert "[a](" not in card
    assert "![](" not in card
    assert "https://" not in card
    assert "\x1b" not in card
    assert "**e**" not in card
    assert "Python Software Foundation License" in card


@pytest.mark.parametrize(("about", "told"), [(1, "0.100000 [0.050000, 0.150000]"), (0, "not measured")])
def test_the_honest_gain_is_told_where_the_last_dawn_is_about_this_script(night, about, told):
    honest = Interval(0.1, 0.05, 0.15)
    found = Findings(about, about, 8, 0.2, 0.2, honest, None, "", None, (), (), None, None)
    with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
        journal.put_dawn(Dawn(1, about, 4, "2026-01-02T03:04:05Z", findings=dataclasses.asdict(found)))
    lines = night.nightshift("best").stdout.splitlines()
    assert next(line[12:] for line in lines if line.startswith("honest gain")).startswith(told)
    assert lines[0].startswith("best        #1")


def test_the_script_that_dawn_confirmed_without_its_passengers_is_the_best(night):
    found = Findings(1, 0, 8, 0.2, 0.2, Interval(0.1, 0.05, 0.15), None, "", None, (), (1,), None, None)
    with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
        journal.put_dawn(Dawn(1, 1, 4, "2026-01-02T03:04:05Z", findings=dataclasses.asdict(found)))
    said = night.nightshift("best").stdout
    assert said.startswith("best        #0")
    assert "experiments/0.05s-t-confirmed" in said


@pytest.mark.parametrize("there", ["notes.txt", "config.json", "train_mlx.py"])
def test_a_folder_of_something_else_is_left_alone(night, tmp_path, there):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / there).write_text("mine")
    assert there in refused(night.nightshift("best", "--weights", str(folder)))
    assert (folder / there).read_text() == "mine"
    assert "is a file" in refused(night.nightshift("best", "--weights", str(folder / there)))


def test_a_model_folder_with_a_file_of_the_users_is_left_alone(night, tmp_path):
    folder = tmp_path / "model"
    night.nightshift("best", "--weights", str(folder))
    (folder / "notes.txt").write_text("mine")
    assert "notes.txt" in refused(night.nightshift("best", "--weights", str(folder)))
    assert (folder / "notes.txt").read_text() == "mine"


def test_where_writing_fails_nothing_is_left_and_the_older_model_stays(night, tmp_path):
    folder = tmp_path / "model"
    night.nightshift("best", "--weights", str(folder))
    before = (folder / "README.md").read_bytes()
    lost = dataclasses.replace(kept_weights(night), path=tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        write_folder(place_of(night), best_of(night), lost, folder)
    assert (folder / "README.md").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "model" in path.name] == ["model"]


def test_weights_that_are_gone_are_said_with_the_remedy(night, tmp_path):
    weights(night, 1).unlink()
    sentence = refused(night.nightshift("best", "--weights", str(tmp_path / "model")))
    assert "attempt 1 of night t has no weights here" in sentence
    assert "nightshift replay t:1" in sentence
    assert not (tmp_path / "model").exists()
    assert "make them   nightshift replay t:1" in night.nightshift("best").stdout


def test_of_a_night_that_ran_elsewhere_best_knows_the_record_and_not_the_weights(night, tmp_path):
    night.nightshift("export", "record")
    here = night.nightshift("best").stdout
    shutil.rmtree(night.folder("t"))
    there = night.nightshift("best").stdout
    same = ("best", "val_bpb", "gain", "ref", "branch", "take it")
    assert [line for line in there.splitlines() if line.startswith(same)] == [
        line for line in here.splitlines() if line.startswith(same)
    ]
    assert "\nmeasure it " in here
    assert "\nmeasure it " not in there, "confirm needs the journal"
    sentence = refused(night.nightshift("best", "--weights", str(tmp_path / "model")))
    assert "night t ran elsewhere" in sentence
    assert "nightshift replay t:1" in sentence
    assert "ran elsewhere" in refused(night.nightshift("sample", "x", "t:best"))
    assert night.nightshift("best", "--script", "best.py").returncode == 0, "its commit is here"
    assert (night.root / "best.py").read_text() == KEPT
    night.git("update-ref", "-d", "refs/experiments/t/0001")
    assert "git fetch REMOTE refs/experiments/t/0001" in night.nightshift("best").stdout


def test_weights_that_are_cut_off_or_a_link_are_not_taken(night, tmp_path):
    path = weights(night, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert "no weights" in refused(night.nightshift("best", "--weights", str(tmp_path / "model")))
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(whole)
    path.symlink_to(tmp_path / "elsewhere")
    assert "no weights" in refused(night.nightshift("best", "--weights", str(tmp_path / "model")))


def test_the_run_with_the_lowest_score_gives_the_weights(night, tmp_path):
    first = night.attempts("t")[1].runs[0]
    for seed, change_bpb in ((7, -0.1), (8, 0.1)):
        shutil.copytree(weights(night, 1).parents[1], weights(night, 1).parents[1].with_name(f"seed{seed}"))
        with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
            score = dataclasses.replace(first.score, val_bpb=first.score.val_bpb + change_bpb)
            journal.end_run(journal.start_run(1, seed), dataclasses.replace(first, seed=seed, score=score))
            journal.record_noise(noise(journal.attempts()))  # as a night does
    assert kept_weights(night).seed == 7
    card = write_model(night, tmp_path / "model")
    assert f"| these weights (seed 7, the lowest of 3 runs) | {first.score.val_bpb - 0.1:.6f} |" in card
    assert f"| the script | {first.score.val_bpb:.6f}" in card
    assert ", mean of 3 seeds |" in card
    assert "Brackets hold 95 % intervals" in card


def test_the_weights_of_a_replay_serve_where_those_of_the_night_are_gone(night, tmp_path):
    path = weights(night, 1)
    protocol = best_of(night).facts.protocol
    told = {"seed": 3, "val_bpb": 2.5, "failure": None, "protocol": protocol, "device": "a CPU"}
    for name, changes in (("1-b", {}), ("1-c", {"protocol": "x"}), ("1-d", {"failure": "audit"}), ("10-a", {})):
        replay = night.folder("t") / "replays" / name
        replay.mkdir(parents=True)
        (replay / "replay.json").write_text(json.dumps(told | {"val_bpb": 2.5 if name == "1-b" else 2.0} | changes))
        shutil.copyfile(path, replay / "model.safetensors")
    assert kept_weights(night).path == path
    path.unlink()
    assert kept_weights(night).path.parent.name == "1-b"
    card = write_model(night, tmp_path / "model")
    assert "| these weights (seed 3) | 2.500000 |" in card
    assert "in a replay after the night" in card


@pytest.mark.slow
def test_the_remedy_for_weights_that_are_gone_brings_them_back(night, tmp_path):
    weights(night, 1).unlink()
    done = night.nightshift("replay", "t:1")
    assert done.returncode == 0, done.stderr
    assert "in a replay after the night" in write_model(night, tmp_path / "model")
    assert night.nightshift("sample", "x", "--tokens", "3").returncode == 0


def test_a_night_that_has_kept_nothing_says_so(grounds):
    assert "no night has run here yet" in nothing_yet(grounds.nightshift("best"))


def test_a_kept_model_continues_a_text(kept_night):
    first, again = (kept_night.nightshift("sample", "import os", "--tokens", "9", "--seed", "5") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("import os")
    assert len(first.stdout) > len("import os") + 5
    assert first.stdout == again.stdout


def test_an_attempt_without_weights_continues_nothing(night):
    weights(night, 0).unlink()
    assert "attempt 0 of night t has no weights" in refused(night.nightshift("sample", "x", "0"))
    assert "no attempt 9" in refused(night.nightshift("sample", "x", "9"))
    for wrong in ("-1", "nan", "11", "warm"):
        assert "--temperature" in refused(night.nightshift("sample", "x", "--temperature", wrong))


def test_ctrl_c_ends_the_text_and_its_processes(kept_night, tmp_path):
    words = command("sample", "import os", "--tokens", "1000000", "--temperature", "0")
    env = environment(TMPDIR=str(tmp_path))
    with subprocess.Popen(
        words, cwd=kept_night.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(20).startswith(b"import os")
        assert list(tmp_path.glob(f"{PREFIX}*"))
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == b""
    assert rest.endswith(b"\n")
    assert list(tmp_path.iterdir()) == [], "the folder of the process, which ended with it"
