"""Execute jobs on the workers of this machine, or of a cluster.

Start reading with pool.py: what the driver asks of a pool, and the pool of this machine, whose GPUs and cores
device_slots.py divides. ray_pool.py executes on the nodes of a Ray cluster: cluster.py reaches it, and node.py is the
part there.
"""

POOLS = {  # name → help; each is opened in agent/night/opening.py
    "local": "workers on this machine",
    "ray": "on a Ray cluster; keep it in a private network, since anyone who reaches its ports can run programs there",
}
