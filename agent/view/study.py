"""Show what a study has found: the same facts in a terminal and on its page."""

from dataclasses import dataclass

from agent.judging.studies import ArmResult, Results, RuleResult, Word, results_of
from agent.judging.study_plan import UNITS
from agent.records.record import Record
from agent.text import one_line
from agent.view import charts
from agent.view.charts import Chart, Spec
from agent.view.screen import Column, table_lines

COLUMNS = (
    Column("arm"), Column("against the baseline", least=24), Column("gain [95 %]", right=True),
    Column("mean ± deviation", right=True, rank=2), Column("in σ", right=True, rank=1), Column("p", right=True, rank=3),
    Column("p equal", right=True, rank=4), Column("d", right=True, rank=5), Column("others", rank=6),
)  # fmt: skip
ROW_PIXELS, TOP_PIXELS = 24, 60
FEW_SEEDS = (
    "Intervals are of one comparison each; p, and the words, allow for the number of arms. ANOVA asks whether any arms "
    "differ, which the words answer arm by arm; Cohen's d (gain by deviation) of so few seeds is rough."
)


@dataclass(frozen=True, slots=True)
class StudyForecast:
    """What a study can show and what it costs; `study --dry` makes no run."""

    tag: str
    device: str
    arms: int  # the baseline included
    seeds: int  # of each arm
    runs: int  # of all arms together
    hours: float  # of all runs, about
    sigma_bpb: float | None  # how far one run moves with its seed, by an earlier night on this device
    sigma_of: str | None  # that night
    smallest_sigmas: float  # smallest difference that one comparison shows in 4 of 5 studies, in σ
    smallest_corrected_sigmas: float  # the same with the correction for all comparisons
    seeds_for_margin: int | None  # seeds that would show the margin; null: not known, or a thousand


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """What a study has found so far."""

    tag: str
    results: Results  # so far


def of_study(record: Record) -> Results | None:
    """Return what a study has found; None for a night that is none."""
    study = record.night.options.study
    return None if study is None else results_of(study, record.attempts)


def number(value: float | None, form: str = ".5g") -> str:
    """Return a number as a study shows it; "" for None."""
    return "" if value is None else format(value, form).replace("-", "−")


def gain_words(arm: ArmResult | RuleResult) -> str:
    """Return a gain, or the value of a rule, with its interval."""
    ends = (arm.value, arm.low, arm.high) if isinstance(arm, RuleResult) else (arm.gain, arm.gain_low, arm.gain_high)
    return "" if ends[0] is None else "{} [{}, {}]".format(*(number(end, "+.3g") for end in ends))


def rule_words(rule: RuleResult) -> str:
    """Return a rule with its value: the left side less the right side."""
    return f"falsified if {rule.rule}: the sides differ by {gain_words(rule)}, p {number(rule.p, '.2g')}"


def row_of(arm: ArmResult) -> tuple[str, ...]:
    """Return an arm as the cells of COLUMNS."""
    others = ", ".join(f"{measure} {number(value, '.4g')}" for measure, value in arm.others.items())
    word = f"{arm.word or 'the baseline'}{f': {arm.fault}' if arm.fault else ''}"
    if arm.simpler is not None and arm.word in (Word.BETTER, Word.EQUAL):
        word += f", and simpler, so preferred: {arm.simpler}"
    mean = "" if arm.mean is None else f"{number(arm.mean)} ± {number(arm.deviation, '.2g')}"
    rest = number(arm.sigmas, "+.1f"), number(arm.p, ".2g"), number(arm.p_equal, ".2g"), number(arm.cohens_d, "+.1f")
    return arm.name, one_line(word, 200), gain_words(arm), mean, *rest, others


def study_lines(found: Results, width: int | None) -> list[str]:
    """Return a study for a terminal of this width, or a file."""
    lines = [found.question, found.answer, "", *table_lines(COLUMNS, map(row_of, found.arms), width), ""]
    for hypothesis in found.hypotheses:
        lines.append(f"{hypothesis.name}: {hypothesis.verdict}. {hypothesis.says}")
        lines += [f"    {rule_words(rule)}" for rule in hypothesis.rules]
    return [*lines, *(f"deviation from the plan: {words}" for words in found.deviations), *notes(found)]


def notes(found: Results) -> list[str]:
    """Say how the figures are to be read."""
    unit = UNITS[found.measure]
    sigma = "" if found.sigma is None else f"; one run scatters by σ = {number(found.sigma, '.2g')}"
    anova = "" if found.anova_p is None else f" ANOVA over all arms: p {number(found.anova_p, '.2g')}."
    return [f"{found.measure}: {unit}; the margin is {found.margin:g}{sigma}.{anova}", FEW_SEEDS]


# ---- the estimation plot ---------------------------------------------------------------------------------------------


def plots_of(found: Results) -> Chart | None:
    """Draw every run as a dot with each arm's mean and interval, and the gains beside them; None without any."""
    arms = [arm for arm in found.arms if arm.mean is not None]
    runs = [{"arm": run.arm, "x": run.value} for run in found.order if run.value is not None]
    if not arms:
        return None
    names = [arm.name for arm in found.arms]
    means = [{"arm": arm.name, "x": arm.mean, "low": arm.low, "high": arm.high} for arm in arms]
    gains = [
        {"arm": arm.name, "x": arm.gain, "low": arm.gain_low, "high": arm.gain_high}
        for arm in arms
        if arm.gain is not None
    ]
    band = [{"low": -found.margin, "high": found.margin}]
    ends = {"field": "low", "type": "quantitative"}, {"field": "high"}
    margin: Spec = {
        "data": {"values": band}, "mark": {"type": "rect", "color": "var(--line)", "opacity": 0.5},
        "encoding": {"x": ends[0], "x2": ends[1], "y": None},
    }  # fmt: skip
    dots: Spec = {"data": {"values": runs}, "mark": {"type": "point", "size": 40, "color": "var(--discarded)"}}
    panels = [(f"{found.measure} of every run", [dots], means), ("gain over the baseline", [margin], gains)]
    drawings = []
    for title, below, values in panels:
        interval = {
            "mark": {"type": "rule", "strokeWidth": 2, "color": "var(--kept)"},
            "encoding": {"x": ends[0], "x2": ends[1]},
        }
        mean = {"mark": {"type": "point", "filled": True, "shape": "diamond", "size": 70, "color": "var(--kept)"}}
        spec: Spec = {
            "description": f"Estimation plot: {title}",
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "axis": {"title": title}, "scale": {"zero": False}},
                "y": {
                    "field": "arm",
                    "type": "nominal",
                    "sort": None,
                    "scale": {"domain": names},
                    "axis": {"labelLimit": 110},
                },
            },
            "layer": [*below, *({"data": {"values": values}, **layer} for layer in (interval, mean))],
        }
        height = TOP_PIXELS + ROW_PIXELS * len(names)
        drawings.append({name: charts.svg(spec, size | {"height": height}) for name, size in charts.SIZES.items()})
    words = [
        "a dot is a run",
        "diamonds are means with their 95 % intervals",
        f"grey: gains below the margin of {found.margin:g}",
    ]
    return Chart("Estimation plot", words, [], drawings)
