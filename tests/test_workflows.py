"""The workflows follow GitHub's own schema, and name tests and commands that exist."""

import re
import subprocess
import sys

import pytest
from nights import PROJECT, options_of

from agent.cli.main import without_json

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))


def test_every_workflow_follows_the_schema():
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_file_that_a_workflow_names_exists_and_every_command_of_ours_is_one(workflow):
    named = set(re.findall(r"(?<![\w/.])(?:tests/)?[\w/]+\.py\b", workflow.read_text()))
    assert {name for name in named if not (PROJECT / name).is_file()} == set()
    for words in re.findall(r"nightshift ([a-z].*)", workflow.read_text()):
        assert options_of(*without_json(re.split(r" [|>]", words)[0].split())[0]) is not None
