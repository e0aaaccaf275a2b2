"""Propose edits by a coding agent."""
