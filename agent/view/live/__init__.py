"""The live view of a night: verdicts that scroll, and below them a panel of a few lines that follows the night."""
