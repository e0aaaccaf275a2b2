"""What the scores say: pure functions, from runs to decisions."""
