"""What is kept: journal, ledger, git commits, checksums."""
