"""Scores compare within one protocol: the same data, budget, kind of device, precision and code that computes."""

import subprocess
import sys
from dataclasses import replace

import pytest
from nights import PROJECT
from samples import NIGHT

from agent.errors import MachineError, NightError
from agent.runs.fixed import check_same_machine, lay_out_fixed, lay_out_warm, probe, protocol
from agent.sandbox.environment import settings_in

FACTS = {"fingerprint": "text", "device_kind": "cuda", "device": NIGHT.device, "settings": ""}
TF32_OFF = "MLX_ENABLE_TF32=0"


def test_each_setting_counts_on_its_devices_and_is_told_in_words():
    given = {
        "MLX_ENABLE_TF32": "0", "MLX_METAL_GPU_ARCH": "x\n+y", "MLX_DISABLE_COMPILE": "0", "NIGHTSHIFT_BLAS": "off",
        "NIGHTSHIFT_KERNELS": "plain", "MLX_CUDA_USE_CUDNN_SDPA": "0", "MLX_TOKEN": "x",
    }  # fmt: skip
    assert settings_in(given, "u") == "", "a part of a name is no kind of device"
    assert {kind: settings_in(given, kind) for kind in ("cpu", "metal", "cuda")} == {
        "cpu": "MLX_DISABLE_COMPILE=0+NIGHTSHIFT_KERNELS=plain+NIGHTSHIFT_BLAS=off",
        "metal": f"{TF32_OFF}+MLX_METAL_GPU_ARCH=x__y+MLX_DISABLE_COMPILE=0",
        "cuda": f"{TF32_OFF}+MLX_CUDA_USE_CUDNN_SDPA=0+MLX_DISABLE_COMPILE=0+NIGHTSHIFT_KERNELS=plain",
    }


def test_a_night_goes_on_with_the_settings_that_it_was_begun_with():
    usual = replace(NIGHT, device_kind="cuda", protocol=protocol(FACTS, NIGHT.budget_s))
    without = {**FACTS, "settings": TF32_OFF}
    other = replace(usual, protocol=protocol(without, NIGHT.budget_s))
    assert other.protocol == f"{usual.protocol}+{TF32_OFF}"
    check_same_machine(usual, FACTS)
    check_same_machine(other, without)
    with pytest.raises(NightError, match=r"has protocol \w+, and here it is \w+\+MLX_ENABLE_TF32=0, so "):
        check_same_machine(usual, without)
    with pytest.raises(NightError, match=r"has protocol \w+\+MLX_ENABLE_TF32=0, and here it is \w+, so "):
        check_same_machine(other, FACTS)


def test_a_script_finds_agent_lab_in_its_folder_and_nothing_else_of_the_harness(tmp_path):
    lay_out_fixed(PROJECT, ["prepare.py"], tmp_path)
    assert (tmp_path / "agent" / "__init__.py").read_text() == ""
    assert {path.name for path in (tmp_path / "agent").iterdir()} == {"__init__.py", "lab"}
    script = tmp_path / "script.py"
    script.write_text("import prepare\nfrom agent.lab import kernels\nprint(kernels.__file__)\nimport agent.runs\n")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/agent/lab/kernels/__init__.py\n"
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'agent.runs'\n")


def test_compiled_code_that_a_kill_tore_is_written_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    for name in ("whole", "torn"):
        (tmp_path / "cache" / "kernels" / name).write_bytes(b"machine code")
    lay_out_warm(tmp_path / "night")
    whole, torn = (tmp_path / "night" / "warm" / "cache" / "kernels" / name for name in ("whole", "torn"))
    torn.write_bytes(b"mach")
    lay_out_warm(tmp_path / "night")
    assert (torn.read_bytes(), whole.read_bytes()) == (b"machine code", b"machine code")


@pytest.mark.parametrize("code", [0, 3])
def test_a_prepare_py_that_ends_the_process_gets_one_sentence(tmp_path, code):
    (tmp_path / "prepare.py").write_text(f"raise SystemExit({code})\n")
    with pytest.raises(MachineError, match=rf"could not be read \(exit code {code}\); run: "):
        probe(tmp_path)


def test_the_machine_is_asked_without_a_word_where_warnings_are_errors(grounds, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert probe(grounds.root)["fingerprint"]
    assert capfd.readouterr().err == ""
