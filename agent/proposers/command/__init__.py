"""A coding agent as a source of ideas."""
