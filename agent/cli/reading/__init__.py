"""The commands that only read nights."""
