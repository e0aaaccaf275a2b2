"""Fill the store in $TRACKIO_DIR with runs, one a line of JSON on standard input.

TRACKIO_DIR=FOLDER python -P trackio_filler.py < runs.jsonl
"""

import json
import sys


def main() -> None:
    """Log each run as a whole; Trackio's own log() would need a thread and seconds for each."""
    from trackio.sqlite_storage import SQLiteStorage

    for line in sys.stdin:
        run = json.loads(line)
        SQLiteStorage.bulk_log(
            project=run["project"],
            run=run["run"],
            metrics_list=run["metrics"],
            steps=run["steps"],
            timestamps=run["timestamps"],
            config=run["config"],
        )


if __name__ == "__main__":
    main()
