"""Whether the machine is as fast as before: the speeds of runs of one script, and what gives the machine its power.

Start reading with speeds.py: how slow is too slow. agent/runs/execute.py makes a run void by that. paces.py knows when
a machine stays slow, power.py asks for battery and saving mode.
"""
