"""Where jobs are executed: the workers of this machine, or of a cluster.

Start reading with pool.py, what the driver asks of a pool. local.py executes on this machine, whose GPUs and cores
leases.py divides, ray_pool.py on the nodes of a Ray cluster: cluster.py reaches it, and node.py is the part there.
"""
