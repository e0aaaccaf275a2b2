"""Check a training script's contract, read and set its dials, and apply patches to it."""
