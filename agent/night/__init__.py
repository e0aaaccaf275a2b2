"""A night from its opening to its end, and its confirmation at dawn.

Start reading with driver.py, the loop. opening.py refuses what cannot work before anything is written; dawn.py measures
the result again in the morning.
"""
