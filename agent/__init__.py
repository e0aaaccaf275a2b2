"""The harness: it proposes edits of one training script, trains, scores and judges them, and keeps what is better.

Start reading with experiment.py, the nouns of a night. The files directly in this folder are for all others: errors,
and small tools for text, files and time. README.md lists the folders; import-linter holds their order.
"""

__version__ = "0.1.0"
