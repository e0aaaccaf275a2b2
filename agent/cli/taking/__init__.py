"""The commands that take something out of a night: a record, a model, a table for other programs."""
