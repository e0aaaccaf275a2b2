"""The commands that look at the machine: is it fit for a night, and where does a training step spend its time?

Start reading with doctor.py.
"""
