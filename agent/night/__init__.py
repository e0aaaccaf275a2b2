"""Run a night from its opening to its end, and confirm its result.

Start reading with loop.py: plan.py says what is to be done next, and makes the jobs; proposals.py tells the proposers
what they may know, and gets the ideas. opening.py refuses what cannot work before anything is written, and puts the
parts of state.py together; confirmation.py measures the result again in the morning.
"""
