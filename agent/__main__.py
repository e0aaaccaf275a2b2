"""`python -m agent`: the same command as `nightshift`."""

import sys

try:
    from agent.cli.main import main
except KeyboardInterrupt:  # importing takes some tenths of a second
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
