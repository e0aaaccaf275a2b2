"""The commands of nightshift as tools of the Model Context Protocol, for coding agents that speak it."""
