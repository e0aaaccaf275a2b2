"""Leaves files of odd names in folders that nobody may enter, and its curve as a folder."""

import os

trained = main


def main():
    trained()
    os.remove("out/metrics.jsonl")
    os.makedirs("out/metrics.jsonl/locked")
    for name in (b"out/\xff\xfe", b"out/line\nbreak\ttab", b"out/\x1b[2J", b"out/" + b"n" * 250):
        os.close(os.open(name, os.O_CREAT))
    os.chmod("out/metrics.jsonl/locked", 0)
    os.chmod("out/metrics.jsonl", 0)
