"""What the doctor says of a machine: what is missing, and what is only slow."""

import json
import shutil

from json_page import faults
from nights import Grounds, git

from agent.cli import doctor
from agent.lab.data import select


def test_a_night_without_data_is_possible_where_they_can_be_prepared(tmp_path, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "not yet" / "there"))
    assert doctor.data(tmp_path).ok
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "file" / "there"))
    finding = doctor.data(tmp_path)
    assert (finding.ok, finding.essential) == (False, True)
    assert f"Not a directory: '{tmp_path / 'file'}" in finding.detail


def test_the_doctor_looks_at_the_corpus_of_the_scripts_folder(tiny_data, tmp_path, monkeypatch):
    shutil.copytree(tiny_data.parents[1], tmp_path / "cache")
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "data" / "selected").unlink()
    select(tmp_path / "cache" / "data" / tiny_data.name, tmp_path)
    assert tiny_data.name in doctor.data(tmp_path).detail
    assert "none yet" in doctor.data(tmp_path / "cache").detail


def test_the_doctor_says_what_is_there_and_only_what_a_night_needs_makes_it_fail(grounds, tmp_path):
    done = grounds.nightshift("doctor", "--json", NIGHTSHIFT_DATA=str(tmp_path), CC="/bin/false")
    answer = json.loads(done.stdout)
    assert faults("doctor", answer) == []
    bad = {check["name"]: check["essential"] for check in answer["checks"] if not check["ok"]}
    assert (done.returncode, answer["exit_code"], answer["ready"]) == (1, 1, False)
    assert answer["error"] == "not ready for a night: see data"
    assert [name for name, essential in bad.items() if essential] == ["data"]
    for part in ("✓ Python 3", "✓ MLX ", "GFLOP/s", "✓ script: ", "✓ disk", "✗ data: "):
        assert part in done.stderr


def test_the_doctor_looks_at_a_script_that_prints_its_own_score_and_at_no_corpus(tmp_path):
    (tmp_path / "bench.py").write_text("import no_such_package\nprint('rows_s: 1')\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    words = ("doctor", "--json", "--script", "bench.py", "--metric")
    answer = json.loads(Grounds(tmp_path).nightshift(*words, "-rows_s", NIGHTSHIFT_DATA="/nowhere").stdout)
    found = {check["name"]: check["ok"] for check in answer["checks"]}
    assert (found["script"], "data" in found) == (True, False)
