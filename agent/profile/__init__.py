"""Measure where the time of a training step goes."""
