"""What a night knows, and the step that follows from it: nothing here runs a job, and only state.py writes.

Start reading with plan.py. context.py holds the night's parts, state.py the journal in memory, flight.py the jobs that
workers execute now; next_job.py makes the next job of an attempt.
"""
