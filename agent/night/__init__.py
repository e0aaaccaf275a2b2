"""A night from its opening to its end, and its confirmation at dawn."""
