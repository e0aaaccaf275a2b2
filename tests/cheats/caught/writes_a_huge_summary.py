"""Leaves a summary of 300 MB, numbers of a million digits, and brackets nested deeper than a parser goes."""

trained = main


def main():
    trained()
    number = "9" * 1_000_000
    with Path("out/summary.json").open("w") as summary:
        summary.write('{"num_steps": ' + number + ', "depth": -1e999, "peak_vram_mb": ' + "[" * 100_000)
        for _ in range(300):
            summary.write("[" * 1_000_000)
    Path("out/metrics.jsonl").write_text('{"progress": NaN, "step": ' + number + "}\n" + "[" * 1_000_000 + "\n")
