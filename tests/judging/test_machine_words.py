"""What a driver or a full machine says of itself, which makes a run invalid."""

import pytest

from agent.judging.failures import machine_fault

WATCHDOG = (
    "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution "
    "failed: Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)."
)
LOGS = [
    ("metal", "impacting interactivity", WATCHDOG),
    ("metal", "insufficient memory", "[METAL] Command buffer execution failed: Insufficient Memory (00000008)"),
    ("metal", "[metal::malloc] resource limit", "RuntimeError: [metal::malloc] Resource limit (499000) exceeded."),
    ("cuda", "uncorrectable ecc error", "RuntimeError: cudaEventSynchronize(event) failed: uncorrectable ECC error"),
    ("cuda", "fallen off the bus", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
    ("cuda", "out of memory", "RuntimeError: cudaMallocAsync failed: out of memory"),
    ("", "no space left on device", "OSError: [Errno 28] No space left on device: 'out/model.safetensors'"),
]


@pytest.mark.parametrize(("kind", "words", "log"), LOGS)
def test_the_words_of_each_platform_are_known_on_its_device_alone(kind, words, log):
    for device_kind in ("cpu", "metal", "cuda"):
        sentence = machine_fault(f"step 12\n{log}", device_kind)
        assert (sentence is not None) == (kind in ("", device_kind))
        assert sentence is None or f'"{words}"' in sentence


@pytest.mark.parametrize(
    "log",
    [
        "",
        "train_mlx: the loss became nan at step 4",
        WATCHDOG + "\nstep" * 20,
        "a memory of bigrams\nKeyError: 'device'",
    ],
)
def test_what_a_script_says_of_its_own_faults_is_not_the_machines(log):
    assert machine_fault(log, "metal") is machine_fault(log, "cuda") is None
