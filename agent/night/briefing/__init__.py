"""Brief the sources of ideas on a night, and its owner on how fast it will go.

Start reading with brief.py. It knows neither the driver nor its state, so that a command can brief as a night does.
"""
