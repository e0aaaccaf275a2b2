"""`python -m agent`: the same command as `nightshift`."""

import sys

from agent.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
