"""Where ideas come from: the catalogue, the search, a language model, a coding agent, the queue.

Start reading with proposer.py, which says what a proposer is and what it is told. registry.py lists the proposers, and
mix.py chooses among them: search/, catalogue/, llm/, command.py and queue.py. What models and agents are told is
written in prompts.py, from the templates of prompts/; attempts.py gives the facts, agent/text.py quotes text that a
proposer must not obey, notes.py reads the owner's words. How an idea becomes an attempt is in agent/night/proposals.py.
"""
