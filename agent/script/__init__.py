"""What a training script has to be, and edits of it: contract, dials, patches."""
