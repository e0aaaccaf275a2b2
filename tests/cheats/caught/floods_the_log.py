"""Prints until the log fills the disk; of its own accord it stops at 400 MB."""

import os

trained = main


def main():
    for _ in range(400):
        os.write(1, b"\x1b[31mflood\xff\n" * 90_000)
    trained()
