"""The commands of nightshift as tools of the Model Context Protocol, for coding agents that speak it.

Start reading with tools.py, the tools. Each asks the command line by commands.py.
"""
