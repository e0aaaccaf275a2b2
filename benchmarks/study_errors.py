"""How often are the words of a study wrong? Studies in which the truth is known, told by the code that real ones use.

    python benchmarks/study_errors.py [--studies 2000] [--apart 300] [--processes N] [--quick] [--json FILE]

A study has a baseline and five arms: two without an effect, one better and one worse by exactly the margin, and one
better by the smallest difference that `study --dry` promises to show, after the correction. Half of the variance of a
run is the seed's, the same for all arms, where seeds are paired; where they are apart, none of it is. --studies is how
many are made for each number of seeds (3, 5, 8) with paired seeds; --apart, with 5 seeds apart, by Dunnett's test.

JSON, for each number of seeds N (and 5_apart), shares of the studies: N_false_word, that call an arm without effect
better or worse; N_false_equal, that call an arm equal that differs by the whole margin; N_wrong_sign, that call the
better arm worse or the other way round; N_false_falsified, that falsify a hypothesis which is true by a hair; N_found,
that call the promised difference better. N_equal is the share of arms without effect that are called equal. Each of the
first four is promised to be at most 5 %.
"""

import measure
import numpy as np
from measure import CORES, Count

from agent.experiment import Attempt, Decision, Ending, Kind, Proposal, Run, Score, Study
from agent.judging.studies import Verdict, Word, results_of, smallest_difference
from agent.judging.study_plan import read_plan

SIGMA_BPB, MARGIN, SHARED = 0.004, 3.0, 0.5  # the margin in sigma; SHARED: share of the variance
ARMS = ("base", "same", "equal", "plus", "minus", "found")
PLAN = "question = 'Which?'\n" + "".join(f"[[arm]]\nname = '{name}'\n" for name in ARMS)
RULE = "[[hypothesis]]\nname = 'H'\nsays = 'It does no harm.'\nfalsified_if = ['same < 0']\n"
SEEDS = (3, 5, 8)


def outcome_of(number: int, seeds: int, paired: bool) -> dict[str, float]:
    """Return which words of one study are wrong, and which of the right ones it found."""
    facts = f"margin = {MARGIN * SIGMA_BPB}\nseeds = {seeds}\npaired = {str(paired).lower()}\n"
    study, dice = Study(facts + PLAN + RULE, "0" * 64), np.random.default_rng((number, seeds, paired))
    shared = SHARED if paired else 0.0
    # what the seed does to all arms leaves the promise, which is in σ of a run, too small by this factor
    found = smallest_difference(read_plan(study.plan), seeds, len(ARMS) - 1) * (1 - shared) ** 0.5
    gains = {"base": 0.0, "same": 0.0, "equal": 0.0, "plus": MARGIN, "minus": -MARGIN, "found": found}
    common, history = dice.normal(0, shared**0.5, seeds), []
    for at, name in enumerate(ARMS):
        scores = 1.0 + SIGMA_BPB * (common + dice.normal(0, (1 - shared) ** 0.5, seeds) - gains[name])
        runs = tuple(
            Run(seed, Ending.FINISHED, 0, 1.0, None, "", Score(float(bpb), 1.0)) for seed, bpb in enumerate(scores)
        )
        verdict = Decision(Kind.MEASURED if at else Kind.BASELINE, "")
        history.append(Attempt(at, 0 if at else None, Proposal(name, "", "study"), "", "c", runs, (verdict,), True))
    results = results_of(study, history)
    words = {arm.name: arm.word for arm in results.arms}
    without = [words["same"], words["equal"]]
    return {
        "false_word": any(word in (Word.BETTER, Word.WORSE) for word in without),
        "false_equal": Word.EQUAL in (words["plus"], words["minus"]),
        "wrong_sign": words["plus"] is Word.WORSE or words["minus"] is Word.BETTER,
        "false_falsified": results.hypotheses[0].verdict is Verdict.FALSIFIED,
        "found": words["found"] is Word.BETTER,
        "equal": without.count(Word.EQUAL) / len(without),
    }


@measure.program(studies=60, apart=10)
def main(*, studies: Count = 2000, apart: Count = 300, processes: Count = CORES) -> measure.Flat:
    """Simulate studies, and count what their words miss.

    Args:
        studies: of each number of seeds, paired
        apart: of 5 seeds that do not pair
        processes: studies at the same time
    """
    flat: measure.Flat = {}
    for name, seeds, paired, count in (*((f"{n}", n, True, studies) for n in SEEDS), ("5_apart", 5, False, apart)):
        measure.say(f"{count} studies of {seeds} seeds{'' if paired else ' apart'}")
        ends = measure.in_parallel(processes, outcome_of, [(number, seeds, paired) for number in range(count)])
        flat |= {f"{name}_{key}": float(np.mean([end[key] for end in ends])) for key in ends[0]}
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
