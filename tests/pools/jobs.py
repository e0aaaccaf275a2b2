"""Jobs of a night, and what a worker needs to execute them."""

from dataclasses import replace
from pathlib import Path

from samples import NIGHT

from agent.runs.jobs import AuditRun, Measure, Trial
from agent.runs.runner import Runner
from agent.sandbox.sandboxes import Open
from agent.sandbox.supervisor import limits_of_machine

STAYS = "import time\ntime.sleep(600)\n"
TRIAL = Trial(attempt=0, script="first", allowance_s=10.0, scoring_s=10.0, steps=2)
MEASURE = Measure(attempt=3, script="", seed=0, allowance_s=60.0)
AUDIT = AuditRun(attempt=3, script="", seed=0, limit_s=9.0, machine=TRIAL)


def runner_in(folder: Path) -> Runner:
    night = replace(NIGHT, budget_s=600.0, data=str(folder.parent / "data"))
    return Runner(night, folder, Open("a test"), limits_of_machine(), lambda: False, lambda progress: None)
