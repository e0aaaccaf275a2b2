"""The harness: proposes edits of one training script, runs, scores and judges them, and keeps what is better."""
