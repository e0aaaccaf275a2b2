"""What ended at the hands of a driver or of a full machine is void and redone, and never an edit's crash."""

from pathlib import Path

import pytest
from drifting import attempt, timed
from nights import Grounds, scripted_context, unigram

from agent.experiment import Ending, Status
from agent.judging.failures import MESSAGES, told_by
from agent.night.loop import run_night
from agent.runs.train import slow, usual_steps_s

WATCHDOG = (
    "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution "
    "failed: Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)."
)
LOGS = {
    WATCHDOG: "impacting interactivity",
    "RuntimeError: [METAL] Command buffer execution failed: Caused GPU Timeout Error "
    "(00000002:kIOGPUCommandBufferCallbackErrorTimeout).": "caused gpu timeout error",
    "[METAL] Command buffer execution failed: Insufficient Memory "
    "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)": "insufficient memory",
    "RuntimeError: [metal::malloc] Resource limit (499000) exceeded.": "[metal::malloc] resource limit",
    "RuntimeError: cudaStreamSynchronize(stream) failed: unspecified launch failure": "unspecified launch failure",
    "RuntimeError: cudaEventSynchronize(event) failed: uncorrectable ECC error encountered": "uncorrectable ecc error",
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.": "fallen off the bus",
    "RuntimeError: cudaMallocAsync failed: out of memory": "out of memory",
    "OSError: [Errno 28] No space left on device: 'out/model.safetensors'": "no space left on device",
}


@pytest.mark.parametrize("log", LOGS)
def test_the_words_of_each_platform_are_known(log):
    own = next(kind for kind, messages in MESSAGES.items() if LOGS[log] in messages)
    for kind in ("cpu", "metal", "cuda"):
        sentence = told_by(f"step 12\n{log}", kind)
        assert (sentence is not None) == (own in ("", kind)), "on its device alone"
        assert sentence is None or f'"{LOGS[log]}"' in sentence


@pytest.mark.parametrize(
    "log",
    [
        "", "ValueError: no such width", "train_mlx: the loss became nan at step 4: lower a learning rate",
        "AssertionError", WATCHDOG + "\nstep" * 20, "a memory of bigrams\nKeyError: 'device'",
    ],
)  # fmt: skip
def test_what_a_script_says_of_its_own_faults_is_not_the_machines(log):
    assert told_by(log, "metal") is told_by(log, "cuda") is None


def test_an_edit_has_one_void_run_and_one_more_for_each_four_that_counted():
    spoilt, again = timed(1.0, Ending.SPOILT), timed(1.0, Ending.SPOILT, seed=1)
    assert attempt(1).may_be_void(0)
    assert not attempt(1, spoilt).may_be_void(0)
    assert not attempt(1, spoilt, timed(1.0)).may_be_void(1)
    counted = [timed(1.0, seed=seed) for seed in range(4)]
    assert attempt(1, spoilt, *counted).may_be_void(4)
    assert not attempt(1, spoilt, again, *counted).may_be_void(4)
    assert attempt(0, spoilt, again).may_be_void(2), "the user's own script is not suspected"
    assert attempt(0, spoilt, spoilt, again).may_be_void(0)
    assert not attempt(0, spoilt, spoilt, spoilt).may_be_void(0)
    assert attempt(1, timed(1.0, Ending.SLEPT), timed(1.0, Ending.LOST)).may_be_void(0), "those no script can cause"


def test_a_run_that_is_a_fifth_slower_than_others_of_its_script_is_the_machines():
    usual_per_s = usual_steps_s(attempt(1, timed(10.0), timed(12.0, seed=1), timed(11.0, seed=2)))
    assert usual_per_s == 11.0
    assert slow(timed(0.79 * 11.0), usual_per_s) == "it trained 21% slower than other runs of its script"
    assert slow(timed(0.81 * 11.0), usual_per_s) is None
    assert slow(timed(1.0, trained_s=1.9), usual_per_s) is None, "too short to tell"
    assert usual_steps_s(attempt(0, timed(10.0))) is None, "its first run compiles"


# ---- a night ---------------------------------------------------------------------------------------------------------

LOADS = "    data = prepare.load_data(verify=False)\n"


def dies(notes: Path, deaths: int, words: str, **dials: object) -> str:
    """A script whose first runs are ended by the driver, as the last line of its log says; its dry run is not."""
    code = f"""
    notes = Path({str(notes)!r})
    if "dry" not in Path.cwd().name and (not notes.exists() or len(notes.read_text()) < {deaths}):
        notes.open("a").write("x")
        raise RuntimeError({words!r})
"""
    return unigram(**dials).replace(LOADS, f"{code.lstrip(chr(10))}{LOADS}")


@pytest.mark.slow  # 10 processes
def test_a_night_redoes_once_what_the_driver_ended_before_it_blames_an_edit(grounds: Grounds, tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_PRESET", "metal")
    scripts = [
        dies(tmp_path / "once", 1, WATCHDOG, SHARPNESS=0.6),
        dies(tmp_path / "always", 99, WATCHDOG, SHARPNESS=0.7),
    ]
    with scripted_context(grounds.root, "t", scripts) as context:
        run_night(context)
    _, once, always = grounds.attempts("t")
    assert [run.ending for run in once.runs] == [Ending.SPOILT, Ending.FINISHED]
    assert once.status is Status.KEEP
    assert [run.ending for run in always.runs] == [Ending.SPOILT, Ending.CRASHED]
    assert always.status is Status.CRASH
    assert '"impacting interactivity"' in always.decision.reason
