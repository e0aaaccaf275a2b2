"""The words of a command line, and the frozen records that they become.

Start reading with parser.py, how a command describes its words. options.py has those that several commands share.
"""
