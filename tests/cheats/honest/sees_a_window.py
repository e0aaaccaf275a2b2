"""Attends to the last sixteen tokens only."""


def mask(length):
    age = mx.arange(length)[:, None] - mx.arange(length)[None, :]
    return mx.where((age < 0) | (age >= 16), float("-inf"), 0.0)
