"""Whether the machine is as fast as before: the speeds of runs of one script, and what gives the machine its power."""
