"""State what happened in a night, as plain values: everything that shows a night shows these same facts."""
