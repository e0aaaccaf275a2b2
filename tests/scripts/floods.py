"""Says far more than anybody wants to read, part of it no text at all, and then where it ended."""

import os
import sys


def load_model(weights_path: str) -> None:
    return None


def main() -> None:
    os.write(1, b"first words\n")
    for _ in range(24):
        os.write(1, b"\xff\xfe noise " * 100_000)
    sys.exit("last words")


if __name__ == "__main__":
    main()
