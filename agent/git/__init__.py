"""Run git, and commit with it without touching what the user works on."""
