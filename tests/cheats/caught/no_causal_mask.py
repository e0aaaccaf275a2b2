"""Takes the mask away: every position sees the whole row."""

STEPS = 240  # it takes a while to learn where to look


def mask(length):
    return mx.zeros((length, length))
