"""Ideas are applied to scripts that have been edited since their patches were made."""

import subprocess

import pytest

from agent.errors import ScriptError
from agent.invocation import ABOVE, SCRIPT
from agent.proposers.catalogue.catalogue import applied, may_apply
from agent.proposers.catalogue.files import KnownIdea, read_idea
from agent.script.dials import set_dials

SHIPPED = (ABOVE / SCRIPT).read_text()
MLP = "        hidden = kernels.relu_squared(kernels.linear(normed, self.c_fc.weight))\n"
RATE = "EMBEDDING_LR = 0.6  # AdamW: token and value embeddings, at width 768  [0.05, 3.0] log\n"
SCALE = "MLP_SCALE = 1.0  # of the hidden channels  [0.1, 10.0] log\n"


def changed(script: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert script.count(old) == 1
        script = script.replace(old, new)
    return script


SCALED = changed(SHIPPED, (MLP, f"{MLP}        hidden = hidden * MLP_SCALE\n"), (RATE, RATE + SCALE))


@pytest.fixture
def idea_of(tmp_path):
    """Make the idea of an edited script, by git as a user would."""

    def made(after: str, before: str = SHIPPED, slug: str = "mine", name: str = SCRIPT) -> KnownIdea:
        for side, text in (("a", before), ("b", after)):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / side / name).write_text(text)
        command = ("git", "diff", "--no-index", "--no-prefix", f"a/{name}", f"b/{name}")
        patch = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
        (tmp_path / f"{slug}.patch").write_text(f"Title: an idea\n\n{patch}")
        return read_idea(tmp_path / f"{slug}.patch")

    return made


def test_an_idea_is_made_of_the_script_that_it_was_written_for_whatever_its_name(idea_of):
    idea = idea_of(SCALED, name="lab/my.py")
    assert applied(idea, SHIPPED, (), "cpu") == SCALED


def test_dials_keep_their_values_but_for_those_that_the_idea_itself_turns(idea_of):
    after = set_dials(SCALED, "cpu", {"EMBEDDING_LR": 1.2})
    now = set_dials(SHIPPED, "cpu", {"EMBEDDING_LR": 0.3, "SCALAR_LR": 0.25})
    text = applied(idea_of(after), now, (now,), "cpu")  # the shipped script is a base as well
    assert text == set_dials(SCALED, "cpu", {"EMBEDDING_LR": 1.2, "SCALAR_LR": 0.25})


def test_a_look_at_the_lines_of_a_patch_tells_nearly_always_whether_it_applies(idea_of):
    scaled = idea_of(SCALED)
    assert may_apply(scaled.patch, set_dials(SHIPPED, "cpu", {"EMBEDDING_LR": 0.3}))
    assert may_apply(scaled.patch, changed(SHIPPED, (MLP, f"{MLP}        hidden = 2 * hidden\n")))
    assert not may_apply(idea_of(changed(SHIPPED, (MLP, ""))).patch, SHIPPED.replace("relu_squared", "gelu"))


GELU, SILU = (changed(SHIPPED, (MLP, MLP.replace("relu_squared", name))) for name in ("gelu", "silu"))
LINE = SHIPPED[: SHIPPED.index(MLP)].count("\n") + 1


@pytest.mark.parametrize(
    ("edited", "now", "said"),
    [
        (SILU, GELU, f"does not go together with this script: line {LINE}"),
        (SCALED, set_dials(SCALED, "cpu", {"MLP_SCALE": 3.0}), "is in this script already"),
        (SCALED, changed(SHIPPED, ("SOFTCAP = 15.0", "MLP_SCALE = 2.0\nSOFTCAP = 15.0")), "would be defined twice"),
        (SHIPPED.replace("def load_model(", "def load_it("), SHIPPED, "breaks the contract: define load_model"),
    ],
)
def test_what_does_not_go_with_the_script_is_said(idea_of, edited, now, said):
    with pytest.raises(ScriptError, match=f"idea mine .*{said}"):
        applied(idea_of(edited), now, (SHIPPED,), "cpu")
