"""The commands that look at the machine: nightshift doctor and nightshift profile."""

from pathlib import Path

from rich.console import Console

from agent.cli.answer import Answer
from agent.cli.options import SCRIPT, PositiveInt, Seed


def doctor(*, script: Path = SCRIPT, verify: bool = False) -> Answer:
    """Check Python, MLX, BLAS, script, git, disk, memory and data.

    Args:
        script: the training script (default: train_mlx.py)
        verify: also try out the machine, which takes minutes: operations and steps against float32, memory, sandbox,
            clocks, and a night of one experiment; writes verify.json
    """
    from agent.cli.checks import examine
    from agent.cli.verify import verified

    return examine(Console(), script, [verified] if verify else [])


def profile(*, script: Path = SCRIPT, steps: PositiveInt = 16, seed: Seed = 0, trace: Path | None = None) -> Answer:
    """Show where the time of a training step goes, phase by phase.

    Args:
        script: the training script (default: train_mlx.py)
        steps: to train (default: 16)
        seed: of the run (default: 0)
        trace: run once more under the GPU's own recorder: Metal System Trace (name a .trace file; unverified on a Mac)
            or Nsight Systems
    """
    from agent.profile.profile import ProfileRequest
    from agent.profile.profile import profile as take_apart

    return Answer(take_apart(ProfileRequest(script, steps, seed, trace), Console()))
