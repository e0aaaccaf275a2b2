"""Train, score and audit one run of one attempt, each in its own boxed process."""
