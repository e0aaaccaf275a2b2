"""Workers on the nodes of a Ray cluster: the same jobs, executed by the same code, wherever a node is.

Start reading with pool.py: it gives out jobs, and has those of a node that disappears done again. broker.py speaks with
Ray for it, node.py answers on a node.
"""
