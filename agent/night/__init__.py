"""A night from its opening to its end, and its confirmation at dawn.

Start reading with driver.py, the loop: plan.py says what is to be done next and writes nothing, record.py writes down
what came of it. opening.py refuses what cannot work before anything is written; dawn.py measures the result again in
the morning.
"""
