"""Propose edits by a language model."""
