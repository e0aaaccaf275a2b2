"""What an author of edits is told, be it a language model, a coding agent or a person: one view of the night.

Each reader's own form of it is made beside that reader.
"""
