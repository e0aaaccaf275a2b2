"""State the facts of a night: those that stay the same until its end, and those that hold now."""

from agent.experiment import Attempt, Summary
from agent.proposers.author.written import written
from agent.proposers.briefing import Briefing, Left
from agent.text import counted


def memory_gb(attempt: Attempt, device_kind: str) -> float | None:
    """Return the most memory that it filled: of a GPU by the script's count, else by the harness's watch."""
    if device_kind == "cuda":
        peak_mb = attempt.summary.peak_vram_mb if attempt.summary is not None else None
        return peak_mb / 1024 if peak_mb is not None else None
    return attempt.peak_bytes / 2**30 if attempt.peak_bytes is not None else None


def lasting(briefing: Briefing) -> str:
    """List the facts that no attempt changes: device, corpus, training time."""
    return written("night", night=briefing.night, setting=briefing.setting)


def present(briefing: Briefing) -> str:
    """List the facts that hold now: noise, the incumbent, where its time goes, what is left of the night."""
    best = briefing.parent
    return written(
        "so_far",
        noise=briefing.noise,
        best=best,
        pace=_pace(best),
        size=_size(best.summary or Summary()),
        memory_gb=memory_gb(best, briefing.night.device_kind),
        setting=briefing.setting,
        left=_left(briefing.left),
    )


def _pace(best: Attempt) -> str:
    summary = best.summary or Summary()
    return _known(
        ("{:,} steps", summary.num_steps),
        ("{:.4g} M tokens", summary.total_tokens_M),
        ("{:,.0f} tokens a second, with start and end", best.tokens_s),
    )


def _size(summary: Summary) -> str:
    """Describe a model by the numbers in its run's own summary, which are not verified."""
    return _known(
        ("{:.6g} M parameters", summary.num_params_M),
        ("{:.6g} layers", summary.depth),
        ("{:.6g} % of the device's peak FLOPS", summary.mfu_percent),
    )


def _known(*facts: tuple[str, object]) -> str:
    return ", ".join(form.format(value) for form, value in facts if isinstance(value, int | float))


def _left(left: Left) -> str:
    words = [] if left.experiments is None else [counted(left.experiments, "experiment")]
    if left.seconds is not None:
        hours = left.seconds / 3600
        words.append(f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes")
    return ", ".join(words)
