"""A night in one file: packed away beside the others, or carried to another machine. One format, one reader."""
