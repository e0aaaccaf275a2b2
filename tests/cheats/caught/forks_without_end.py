"""Starts processes as fast as it can; of its own accord it stops at 300."""

import os

trained = main


def main():
    children = []
    try:
        while len(children) < 300:
            if (child := os.fork()) == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
    except OSError as error:
        print("no more processes:", error)
    time.sleep(5)
    print("LOOT", len(children), "processes for five seconds")
    trained()
