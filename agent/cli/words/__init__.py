"""The words of a command line, and the frozen records that they become."""
