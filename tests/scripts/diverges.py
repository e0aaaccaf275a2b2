"""Finds a NaN and says so, as the contract asks."""

import sys

LR = 9.0  # far too much  [0.1, 10.0] log


def load_model(weights_path: str) -> None:
    return None


def main() -> None:
    print("loss is nan at step 17: the run has diverged", file=sys.stderr)
    sys.exit(3)


if __name__ == "__main__":
    main()
