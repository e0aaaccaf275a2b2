"""A night from its opening to its end, and its confirmation at dawn.

Start reading with driver.py, the loop: planning/ says what is to be done next, record.py writes down what came of it,
ideas.py gets the ideas. opening.py refuses what cannot work before anything is written, and puts the parts together,
briefing.py tells the sources what they may know, and dawn.py measures the result again in the morning.
"""
