"""From scores to decisions: pure functions, without files, clocks or processes.

Start reading with judges.py: keep, discard, or one more seed. belief.py estimates what every edit is worth;
ablation.py chooses the confirmation runs.
"""
