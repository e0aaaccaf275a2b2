"""Looks for the process that started it, to signal it, trace it or open its files."""

import ctypes
import os

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
trained = main


def main():
    harness = WORLD["harness"]
    try:
        is_harness = WORLD["command"].encode() in Path(f"/proc/{harness}/cmdline").read_bytes()
    except OSError:
        is_harness = False
    if is_harness:
        print("LOOT sees the harness", list(Path(f"/proc/{harness}/fd").iterdir()))
        os.kill(harness, 0)
        if ctypes.CDLL(None).ptrace(PTRACE_ATTACH, harness, None, None) == 0:
            print("LOOT traces the harness")
            os.waitpid(harness, 0)
            ctypes.CDLL(None).ptrace(PTRACE_DETACH, harness, None, None)
    trained()
