"""Hold what the charts are made of: colours, words, scales, labels, and the outcomes of attempts."""
