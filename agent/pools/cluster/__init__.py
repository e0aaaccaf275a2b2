"""Workers on the nodes of a Ray cluster: the same jobs, executed by the same code, wherever a node is."""
