"""The shipped script learns and keeps its contract, and so does every shipped idea, which applies and can be undone."""

import gc
import subprocess

import pytest
from idea_checks import SHIPPED, as_module, check

import prepare
from agent.invocation import IDEAS as FOLDER
from agent.invocation import PACKAGE, SCRIPT
from agent.proposers.catalogue.catalogue import applied, may_apply
from agent.proposers.catalogue.files import read_ideas
from agent.script.dials import outline_of, read_dials, set_dials
from agent.script.merge import merged

IDEAS, FAULTS = read_ideas(PACKAGE / FOLDER)


def test_every_file_can_be_read_and_tells_all_that_a_night_and_a_reader_need():
    assert FAULTS == ()
    assert len({idea.title for idea in IDEAS}) == len(IDEAS)
    assert [idea.slug for idea in IDEAS if not (idea.why and idea.source and idea.reported)] == []
    assert [idea.slug for idea in IDEAS if idea.group == "other"] == []


def test_every_file_applies_to_the_shipped_script_as_git_has_it(tmp_path):
    (tmp_path / SCRIPT).write_text(SHIPPED)
    for idea in IDEAS:
        subprocess.run(("git", "apply", "--check", idea.file), cwd=tmp_path, check=True)


def test_a_look_at_the_lines_of_a_patch_tells_whether_it_applies():
    tuned = set_dials(SHIPPED, "cpu", {"EMBEDDING_LR": 0.3, "DEPTH": 2})
    assert [idea.slug for idea in IDEAS if not may_apply(idea.patch, tuned)] == []
    assert not any(may_apply(idea.patch, "def main(): ...\n") for idea in IDEAS)


@pytest.mark.slow
def test_every_idea_is_undone_exactly_leaves_the_kernels_and_its_numbers_are_dials_that_can_be_searched():
    shipped = {dial.name for dial in read_dials(SHIPPED, "cpu")}
    for idea in IDEAS:
        edited = applied(idea, SHIPPED, (), "cpu")
        assert merged(edited, edited, SHIPPED, "cpu") == SHIPPED, idea.slug
        assert outline_of(edited, "cpu").plain == (), f"{idea.slug} takes kernels from these"
        added = [dial for dial in read_dials(edited, "cpu") if dial.name not in shipped]
        numbers = [dial for dial in added if isinstance(dial.value, int | float)]
        assert [dial.name for dial in numbers if dial.span is None] == [], idea.slug


@pytest.mark.parametrize(
    "idea",
    [None, *(pytest.param(idea, marks=pytest.mark.slow) for idea in IDEAS)],
    ids=lambda idea: idea.slug if idea else "shipped",
)
def test_the_script_learns_and_keeps_the_contract_as_it_is_and_with_each_idea(idea, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    check(SHIPPED if idea is None else applied(idea, SHIPPED, (), "cpu"), tmp_path)


ON_CPU = {"ENGRAM_LAYERS": "13", "ENGRAM_ROWS": 4096}  # a small form of the GPU's dials


@pytest.mark.slow
def test_the_script_keeps_the_contract_with_n_grams_too_which_only_a_gpu_looks_up(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    check(set_dials(SHIPPED, "cpu", {**ON_CPU, "ENGRAM_TOKENS_S": 0.0}), tmp_path)


@pytest.mark.slow
def test_n_grams_are_looked_up_only_where_the_text_is_long_for_the_budget(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    tokens = prepare.load_data(verify=False).split("train").tokens.size
    for tokens_s, is_text_long in ((tokens / 2, True), (tokens / 2 + 1, False)):
        with as_module(set_dials(SHIPPED, "cpu", {**ON_CPU, "ENGRAM_TOKENS_S": tokens_s})) as script:
            assert script.main(["--budget-s", "2", "--max-steps", "1", "--no-eval", "--out", str(tmp_path)]) == 0
            gc.unfreeze()  # a run freezes these objects
            weights = script.load_model(tmp_path / "model.safetensors").trainable_parameters()
        assert ("engram_embedding" in weights) == is_text_long
