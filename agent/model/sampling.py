"""Continue a text with the weights that a night kept, in the sandbox of the night.

The script runs in a sandbox, since a machine may have written it. It gets the tokens of the text and leaves the tokens
of the continuation in a file of its folder.
"""

import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from agent.errors import MachineError
from agent.experiment import Ending, Night
from agent.files import open_plain, throwaway_folder
from agent.lab.encode import load_encoding
from agent.model.folder import corpus_of
from agent.runs.runner import Runner
from agent.runs.score import SCORER
from agent.sandbox.sandboxes import choose
from agent.sandbox.supervisor import limits_of_machine
from agent.text import harmless_lines

SAMPLER, TOKENS = Path(__file__).with_name("sampler.py"), "tokens.u16"
LIMIT_S = 3600.0  # s; a longer run hangs


def sample(
    night: Night, folder: Path, script: str, weights: Path, text: str, *, tokens: int, temperature: float, seed: int
) -> str:
    """Continue a text with these weights of a night in this folder; raise MachineError if the script fails.

    tokens: at most.
    """
    data = corpus_of(Path(night.data))
    encoding = load_encoding(data.folder / "tokenizer.tiktoken")
    prompt = np.array([data.bos, *encoding.encode_ordinary(text)], np.int32)
    sandbox = choose(night.options.sandbox)
    runner = Runner(night, folder, sandbox, limits_of_machine(), lambda: False, lambda progress: None)
    with throwaway_folder() as aside:
        inside = aside / "sample"  # laying out would replace the throwaway folder itself, and its lock with it
        runner.lay_out(inside, script)
        for program in (SAMPLER, SCORER):
            shutil.copyfile(program, inside / program.name)
        np.save(inside / "prompt.npy", prompt[-data.seq_len :])
        options = [str(weights), str(tokens), f"{temperature!r}", str(seed)]
        command = [sys.executable, SAMPLER.name, runner.script_name, *options]
        outcome = runner.call(command, inside, LIMIT_S, weights)
        if outcome.ending is not Ending.FINISHED:
            last = outcome.last_lines.strip().rpartition("\n")[2]
            raise MachineError(f"the script {outcome.ending} while it continued the text: {last or 'it said nothing'}")
        content = b""
        with suppress(OSError), open_plain(inside, TOKENS) as file:  # a script may leave none
            content = file.read(2 * tokens)
    written = np.frombuffer(content[: len(content) // 2 * 2], np.uint16).tolist()
    # BOS ends the text; a script may write any number
    parts = [encoding.decode_single_token_bytes(token) for token in written if token < encoding.n_vocab - 1]
    return harmless_lines(b"".join(parts).decode(errors="replace"))
