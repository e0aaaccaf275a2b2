"""Workers on the nodes of a Ray cluster: the same jobs, with all that they need sent by hash."""
