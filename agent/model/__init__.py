"""A night's best model, taken out of the night: as a folder that other programs load, or to write text with it."""
