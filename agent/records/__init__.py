"""What is kept: journal, ledger, checksums, and where they lie."""
