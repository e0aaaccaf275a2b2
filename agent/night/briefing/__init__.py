"""Brief the sources of ideas: of what the journal holds, and those that can read of what surrounds the night, too.

Start reading with brief.py. It knows neither the driver nor its state, so that a command can brief as a night does.
"""
