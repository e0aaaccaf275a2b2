"""Where jobs are executed: the workers of this machine, or of a cluster."""
