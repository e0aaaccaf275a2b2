"""Put counts and times into words, and tell numbers from what else a file may hold in their place."""

ABSURD = 1e9  # no megabytes, millions, seconds, losses or speeds of a run are as many; a script may claim what it likes


def is_finite(value: object) -> bool:
    """Return whether a value is a number that fits a finite float: no NaN, no inf, no huge integer."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, as in 1 attempt, 1,200 attempts, 0.5 hours."""
    amount = f"{number:,}" if isinstance(number, int) else f"{number:g}"  # a million experiments are not 1e+06
    return f"{amount} {noun}{'' if number == 1 else 's'}"


def duration(hours: float) -> str:
    """Return a time that something took, as in 12 s, 34 min, 5 h 06 min."""
    if hours < 59.5 / 3600:
        return f"{3600 * hours:.0f} s"
    minutes = round(60 * hours)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def budget(seconds: float) -> str:
    """Return the time that a run is given, as in 40 s, 5 min."""
    return f"{seconds / 60:g} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g} s"
