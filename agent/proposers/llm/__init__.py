"""A language model as a source of ideas: asked for one edit, and its answer read strictly as text.

Start reading with llm.py. author/pages.py writes the question, reply.py reads the answer, chat.py bounds a call in time
and size.
"""
