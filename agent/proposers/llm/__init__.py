"""A language model as a source of ideas."""
