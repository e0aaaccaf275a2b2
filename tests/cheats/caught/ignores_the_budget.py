"""Trains for as long as it likes, as if nobody looked at the clock."""

STEPS = 100_000
