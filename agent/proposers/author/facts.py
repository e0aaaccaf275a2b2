"""State the facts of a night: those that stay the same until its end, and those that hold now."""

from collections.abc import Iterator

from agent.experiment import Attempt, Noise, Summary
from agent.proposers.briefing import Briefing, Left, Setting
from agent.text import counted, one_line

DEVICE_CHARS = 120


def memory_gb(attempt: Attempt, device_kind: str) -> float | None:
    """Return the most memory that it filled: of a GPU by the script's count, else by the harness's watch."""
    if device_kind == "cuda":
        peak_mb = attempt.summary.peak_vram_mb if attempt.summary is not None else None
        return peak_mb / 1024 if peak_mb is not None else None
    return attempt.peak_bytes / 2**30 if attempt.peak_bytes is not None else None


def lasting(briefing: Briefing) -> Iterator[str]:
    """Yield the facts that no attempt changes: device, corpus, training time."""
    night, setting = briefing.night, briefing.setting
    device = f"{one_line(night.device, DEVICE_CHARS)} ({night.device_kind})"
    if setting is not None and setting.cores is not None and setting.memory_gb is not None:
        memory = "of its own memory" if night.device_kind == "cuda" else "of memory"
        device += f", {counted(setting.cores, 'CPU core')}, {setting.memory_gb:.3g} GB {memory}"
    yield f"- device: {device}"
    if setting is not None and setting.corpus is not None:
        corpus = setting.corpus
        yield (
            f"- corpus: {one_line(corpus.name, DEVICE_CHARS)}, {corpus.bytes_per_token:.2f} bytes a token, rows of "
            f"{corpus.seq_len:,} tokens, a vocabulary of {corpus.vocab_size:,}"
        )
    yield f"- training time of a run: {night.budget_s:g} s"


def present(briefing: Briefing) -> Iterator[str]:
    """Yield the facts that hold now: noise, the incumbent, where its time goes, what is left of the night."""
    best, setting = briefing.parent, briefing.setting
    yield f"- noise: {noise_words(briefing.noise)}"
    score = f"val_bpb {best.val_bpb:.6f}" if best.val_bpb is not None else "no score"
    yield f"- incumbent: attempt {best.number}, {score}, {counted(len(best.scores_bpb), 'run')}"
    if pace := ", ".join(_pace(best)):
        yield f"- a run of the incumbent: {pace}"
    if best.summary is not None and (size := _size(best.summary)):
        yield f"- its model and use of the device, by its own account: {size}"
    if (peak := memory_gb(best, briefing.night.device_kind)) is not None:
        yield f"- its peak memory: {peak:.2g} GB{_headroom(peak, setting)}"
    if setting is not None and setting.phases:
        shares = ", ".join(f"{one_line(one.name, 40)} {one.share:.0%} ({one.ms:.3g} ms)" for one in setting.phases)
        yield f"- where a step's time goes, measured for attempt 0: {shares}"
    if left := ", ".join(_left(briefing.left)):
        yield f"- left of the night: {left}"


def noise_words(noise: Noise | None) -> str:
    if noise is None:
        return "not measured yet; take small differences for luck"
    return (
        f"the seed alone moves val_bpb by {noise.sigma_bpb:.6f} (one standard deviation, from {noise.runs} runs); "
        f"differences under {noise.smallest_bpb:.6f} between two runs are luck"
    )


def _pace(best: Attempt) -> Iterator[str]:
    summary = best.summary
    if summary is not None and summary.num_steps is not None:
        yield f"{summary.num_steps:,} steps"
    if summary is not None and summary.total_tokens_M is not None:
        yield f"{summary.total_tokens_M:.4g} M tokens"
    if best.tokens_s is not None:
        yield f"{best.tokens_s:,.0f} tokens a second, with start and end"


def _size(summary: Summary) -> str:
    """Describe a model by the numbers in its run's own summary, which are not verified."""
    known = (
        (summary.num_params_M, "M parameters"),
        (summary.depth, "layers"),
        (summary.mfu_percent, "% of the device's peak FLOPS"),
    )
    return ", ".join(f"{value:.6g} {unit}" for value, unit in known if isinstance(value, int | float))


def _headroom(peak_gb: float, setting: Setting | None) -> str:
    if setting is None or setting.memory_gb is None:
        return ""
    return f" of {setting.memory_gb:.3g} GB, which leaves {max(0.0, setting.memory_gb - peak_gb):.3g} GB"


def _left(left: Left) -> Iterator[str]:
    if left.experiments is not None:
        yield counted(left.experiments, "experiment")
    if left.seconds is not None:
        yield f"{left.seconds / 3600:.1f} hours" if left.seconds >= 3600 else f"{left.seconds / 60:.0f} minutes"
