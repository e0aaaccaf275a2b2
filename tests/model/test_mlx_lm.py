"""The real mlx-lm loads a written model, and computes what the night's own script computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from nights import SCRIPT, SMALL, Grounds, make_repository

from agent.lab.encode import load_encoding
from agent.runs.scorer import load_script
from agent.script.dials import set_dials

TEXT = "import os\n\n\ndef main(arguments):\n    return "
SLOWLY = {"EMBEDDING_LR": 0.05, "UNEMBEDDING_LR": 0.0005, "MATRIX_LR": 0.005}  # lets the second script win

# In a separate process, as a user has it, without this project's folder.
PROGRAM = """
import json, sys
import mlx.core as mx
import mlx_lm
from mlx_lm.models.cache import make_prompt_cache

folder, text = sys.argv[1:]
model, tokenizer = mlx_lm.load(folder, trust_remote_code=True)
ids = tokenizer.encode(text)
cache = make_prompt_cache(model)
whole = model(mx.array([ids]))
steps = [model(mx.array([part]), cache=cache) for part in (ids[:5], *([token] for token in ids[5:]))]
generated = list(mlx_lm.stream_generate(model, tokenizer, text, max_tokens=90))
print(json.dumps({
    "ids": ids,
    "whole": whole[0].tolist(),
    "steps": [row for step in steps for row in step[0].tolist()],
    "generated": generated[-1].generation_tokens,
    "text": "".join(piece.text for piece in generated),
    "hardware": sys.modules["agent.lab.hardware"].__file__,
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Path:
    """A model of the real training script, in a night of two attempts."""
    root = tmp_path_factory.mktemp("mlx_lm")
    source = SCRIPT.read_text()
    first, kept = (set_dials(source, "cpu", SMALL | more) for more in (SLOWLY, {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        grounds = Grounds(make_repository(root / "user", first))
        grounds.try_scripts("t", [kept], budget_s=3.0)
        done = grounds.nightshift("export", "mlx-lm", "--out", str(root / "model"))
        assert done.returncode == 0, done.stderr
        sampled = grounds.nightshift("sample", TEXT, "--temperature", "0", "--tokens", "90")
        (root / "sampled.txt").write_text(sampled.stdout)
    return root / "model"


@pytest.mark.slow
def test_mlx_lm_computes_the_logits_of_the_script_itself_and_generates_the_text_that_sample_does(
    folder, tiny_data, monkeypatch
):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-P", "-c", PROGRAM, str(folder), TEXT]
    done = subprocess.run(words, cwd=folder.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    monkeypatch.delitem(sys.modules, "train_mlx", raising=False)  # put back afterwards
    encoding = load_encoding(tiny_data / "tokenizer.tiktoken")
    bos = encoding.n_vocab - 1
    assert said["ids"] == [bos, *encoding.encode_ordinary(TEXT)]
    assert Path(said["hardware"]).parents[2] == folder
    model = load_script(folder / "train_mlx.py").load_model(str(folder / "model.safetensors"))
    ours = np.array(model(mx.array([said["ids"]])))[0]
    assert np.abs(np.array(said["whole"]) - ours).max() < 1e-4
    assert np.abs(np.array(said["steps"]) - ours).max() < 1e-4, "token by token, with the cache"
    sampled = (folder.parent / "sampled.txt").read_text()
    assert said["generated"] > 64 - len(said["ids"]), "beyond the end of a row"
    # mlx-lm leaves out a space before the first word, with which a model that trained little may begin
    assert sampled.removeprefix(TEXT).removesuffix("\n").lstrip(" ") == said["text"].removesuffix("\n").lstrip(" ")
