"""Digs 3,000 folders deep, deeper than a path is long, for whoever cleans up."""

import os

trained = main


def main():
    trained()
    os.chdir("out")
    for _ in range(3000):
        os.mkdir("deeper")
        os.chdir("deeper")
