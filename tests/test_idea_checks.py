"""What no idea may do is found by the check of ideas."""

import pytest
from idea_checks import SHIPPED, check

from agent.script.dials import set_dials

X0 = "        x0 = x\n"
GROUP = '            if "embedding" in name:\n'
LOADED = "    model.load_weights(list(weights.items()))\n"
MADE = "        self.init_weights()\n"
UPDATED = "        params, state = dict(params), dict(state)\n"
BROKEN = {
    "not causal": (X0, "        x0 = mx.concatenate([x[:, 1:], x[:, :1]], axis=1)\n"),
    "depend on another row": (X0, "        x0 = x + 0.1 * mx.mean(x, axis=0, keepdims=True)\n"),
    "scoring twice gives two results": (X0, "        x0 = x + 0.01 * mx.random.normal(x.shape)\n"),
    "no optimizer group takes x0_lambdas": (
        GROUP,
        f'            if name == "x0_lambdas":\n                continue\n{GROUP}',
    ),
    "Muon is no optimizer of tables": (GROUP, '            if name == "token_embedding.weight":\n'),
    "training changes nothing of spare": (MADE, f"        self.spare = mx.ones(4)\n{MADE}"),
    "a saved model comes back as another": (LOADED, f"{LOADED}    model.x0_lambdas = mx.zeros(model.config.depth)\n"),
    "mx.compile cannot trace a step": (UPDATED, f"{UPDATED}        print(now.lr.item())\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("told", BROKEN)
def test_an_edit_that_breaks_a_promise_is_found(told, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    old, new = BROKEN[told]
    assert SHIPPED.count(old) == 1
    with pytest.raises(AssertionError, match=told):
        check(SHIPPED.replace(old, new), tmp_path)


@pytest.mark.slow
def test_an_edit_that_learns_nothing_is_found(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    rates = dict.fromkeys(("MATRIX_LR", "EMBEDDING_LR", "UNEMBEDDING_LR", "SCALAR_LR"), 1e-9)
    with pytest.raises(AssertionError, match="the loss fell from"):
        check(set_dials(SHIPPED, "cpu", rates), tmp_path)
