"""The best script of a night can be looked at, written to a file, and taken away as a whole model."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from commands import refused
from nights import Grounds, make_repository, unigram

from agent.experiment import Dawn, Proposal
from agent.judging.findings import Findings
from agent.judging.intervals import Interval
from agent.judging.noise import noise
from agent.model.best_script import BestScript
from agent.model.folder import model_card, write_folder
from agent.model.weights import KeptWeights, weights_of
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import read_night
from agent.view.answer import Replay

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


def told(night: Grounds) -> dict[str, str]:
    """What `best` says, by its names."""
    ended = night.nightshift("best")
    assert ended.returncode == 0, ended.stderr
    return {line[:12].strip(): line[12:] for line in ended.stdout.splitlines()}


def write_model(night: Grounds, folder: Path) -> str:
    """Write the model and return its card."""
    ended = night.nightshift("best", "--weights", str(folder))
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in folder.parent.iterdir() if folder.name in path.name] == [folder.name]
    return (folder / "README.md").read_text()


def weights(night: Grounds, number: int) -> Path:
    return night.folder("t") / "runs" / f"{number:04d}" / "seed0" / "out" / "model.safetensors"


# ---- best ------------------------------------------------------------------------------------------------------------


def test_best_says_which_script_it_is_how_good_and_how_to_take_it(night):
    facts = told(night)
    first, best = (attempt.val_bpb for attempt in night.attempts("t")[:2])
    assert facts["best"] == "#1 of night t: script 1"
    assert facts["val_bpb"].startswith(f"{best:.6f}")
    assert facts["gain"].startswith(f"{first - best:+.6f}")
    assert facts["honest gain"].startswith("not measured")
    assert facts["weights"] == str(weights(night, 1))
    assert night.git("show", f"{facts['ref']}:train_mlx.py") == KEPT.strip()
    assert night.git("rev-parse", facts["branch"]) == facts["commit"]
    assert night.nightshift(*facts["take it"].removeprefix("nightshift ").split()).returncode == 0
    assert (night.root / "train_mlx.py").read_text() == KEPT


@pytest.mark.parametrize(
    ("about", "passengers", "gain", "best"),
    [
        (1, (), "+0.100000 [+0.050000, +0.150000]", "#1"),
        (0, (), "not measured", "#1"),  # the dawn was about another script
        (1, (1,), "+0.100000 [+0.050000, +0.150000], on fresh seeds, of #1", "#0"),  # without its passenger
    ],
)
def test_the_script_that_dawn_confirmed_is_the_best_and_its_honest_gain_is_told(night, about, passengers, gain, best):
    honest = Interval(0.1, 0.05, 0.15)
    script = 0 if passengers else about
    found = Findings(about, script, 8, 0.2, 0.2, honest, None, (), passengers, None, None)
    with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
        journal.put_dawn(Dawn(1, about, 4, "2026-01-02T03:04:05Z", findings=dataclasses.asdict(found)))
    facts = told(night)
    assert facts["honest gain"].startswith(gain)
    assert facts["best"].startswith(best)
    assert facts["branch"] == ("experiments/0.05s-t-confirmed" if passengers else "experiments/0.05s-t")


def test_of_a_night_that_ran_elsewhere_best_knows_the_record_and_not_the_weights(night, tmp_path):
    night.nightshift("export", "record")
    here = told(night)
    shutil.rmtree(night.folder("t"))
    there = told(night)
    for name in ("best", "val_bpb", "gain", "ref", "branch", "take it"):
        assert there[name] == here[name]
    assert "nightshift replay t:1" in refused(night.nightshift("best", "--weights", str(tmp_path / "model")))
    assert night.nightshift("best", "--script", "best.py").returncode == 0, "its commit is here"
    assert (night.root / "best.py").read_bytes() == KEPT.encode()
    assert "exists" in refused(night.nightshift("best", "--script", "train_mlx.py"))


# ---- the model's folder ----------------------------------------------------------------------------------------------


def test_a_model_is_written_whole_and_over_nothing(night, tmp_path):
    folder = tmp_path / "model"
    card = write_model(night, folder)
    assert (folder / "train_mlx.py").read_bytes() == KEPT.encode()
    assert (folder / "model.safetensors").read_bytes() == weights(night, 1).read_bytes()
    attempt = best_of(night).attempt
    assert f"| these weights (seed 0) | {attempt.val_bpb:.6f} |" in card
    assert f"`{attempt.commit}`" in card
    assert "not confirmed on fresh seeds" in card
    assert "no script ran with two" in card
    assert "/" not in card.partition("| corpus |")[2].partition("\n")[0], "the card must not tell the owner's folders"
    assert "is there already" in refused(night.nightshift("best", "--weights", str(folder)))
    with pytest.raises(FileNotFoundError):
        write_folder(place_of(night), best_of(night), dataclasses.replace(kept_weights(night), path=tmp_path / "gone"),
                     tmp_path / "other")  # fmt: skip
    assert [path.name for path in tmp_path.iterdir() if "other" in path.name] == []


def test_words_of_a_model_are_plain_text_in_the_card(kept_night):
    known = best_of(kept_night)
    hostile = "<script>x</script> [a](https://b.example) ![](c) `d` **e** | f\x1b[2J\n# g {{ 7 * 7 }}"
    attempt = dataclasses.replace(known.attempt, proposal=Proposal("", hostile, hostile, hostile))
    known = dataclasses.replace(known, attempt=attempt)
    splits = {"train": {"tokens": 1, "bytes": 1}}
    manifest = {"dataset": "stdlib", "scale": "tiny", "splits": splits, "vocab_size": 512, "seq_len": 64}
    card = model_card(known, kept_weights(kept_night), manifest)
    for markup in ("<script>", "[a](", "![](", "https://", "\x1b", "**e**", " 49"):
        assert markup not in card
    assert "Python Software Foundation License" in card


# ---- weights ---------------------------------------------------------------------------------------------------------


def test_weights_that_are_cut_off_a_link_or_gone_are_not_taken_and_the_remedy_is_said(night, tmp_path):
    path, model = weights(night, 1), str(tmp_path / "model")
    whole = path.read_bytes()
    (tmp_path / "elsewhere").write_bytes(whole)
    path.write_bytes(whole[:-1])
    assert "no weights" in refused(night.nightshift("best", "--weights", model))
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    sentence = refused(night.nightshift("best", "--weights", model))
    assert "attempt 1 of night t has no weights here" in sentence
    assert "nightshift replay t:1" in sentence
    assert not (tmp_path / "model").exists()
    assert told(night)["make them"] == "nightshift replay t:1"


def test_the_run_with_the_lowest_score_gives_the_weights(night, tmp_path):
    first = night.attempts("t")[1].runs[0]
    for seed, change_bpb in ((7, -0.1), (8, 0.1)):
        shutil.copytree(weights(night, 1).parents[1], weights(night, 1).parents[1].with_name(f"seed{seed}"))
        with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
            score = dataclasses.replace(first.score, val_bpb=first.score.val_bpb + change_bpb)
            journal.end_run(journal.start_run(1, seed), dataclasses.replace(first, seed=seed, score=score))
            journal.record_facts(noise=noise(journal.attempts()))  # as a night does
    assert kept_weights(night).seed == 7
    card = write_model(night, tmp_path / "model")
    assert f"| these weights (seed 7, the lowest of 3 runs) | {first.score.val_bpb - 0.1:.6f} |" in card
    assert f"| the script | {first.score.val_bpb:.6f}" in card
    assert ", mean of 3 seeds |" in card
    assert "Brackets hold 95 % intervals" in card


def test_the_weights_of_a_replay_serve_where_those_of_the_night_are_gone(night, tmp_path):
    path = weights(night, 1)
    protocol = best_of(night).record.protocol
    facts = asdict(Replay(3, 2.5, None, None, "a CPU", protocol, ()))
    others = {"protocol": "x"}, {"failure": "audit"}, {"val_bpb": None}, {"val_bpb": "low"}
    for name, changes in (("1-b", {}), ("10-a", {}), *((f"1-{at}", change) for at, change in enumerate(others))):
        replay = night.folder("t") / "replays" / name
        replay.mkdir(parents=True)
        now = facts | {"val_bpb": 2.5 if name == "1-b" else 2.0} | changes
        (replay / "replay.json").write_text(json.dumps({"now": now}))
        shutil.copyfile(path, replay / "model.safetensors")
    assert kept_weights(night).path == path
    path.unlink()
    assert kept_weights(night).path.parent.name == "1-b"
    card = write_model(night, tmp_path / "model")
    assert "| these weights (seed 3) | 2.500000 |" in card
    assert "in a replay after the night" in card


# ---- sample ----------------------------------------------------------------------------------------------------------


def test_a_kept_model_continues_a_text(kept_night):
    first, again = (kept_night.nightshift("sample", "import os", "--tokens", "9", "--seed", "5") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("import os")
    assert len(first.stdout) > len("import os") + 5
    assert first.stdout == again.stdout


def test_an_attempt_without_weights_continues_nothing(night):
    weights(night, 0).unlink()
    assert "attempt 0 of night t has no weights" in refused(night.nightshift("sample", "x", "0"))
    for wrong in ("nan", "11"):
        assert "--temperature" in refused(night.nightshift("sample", "x", "--temperature", wrong))
