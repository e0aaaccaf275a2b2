"""Writes into every folder that it knows of outside its own."""

import os
import tempfile

trained = main


def main():
    knows = [
        WORLD["repo"],
        WORLD["home"],
        WORLD["tmp"],
        WORLD["cache"],
        os.environ["NIGHTSHIFT_DATA"],
        "/tmp",
        "/dev/shm",
    ]
    knows += ["/", "/etc", "/usr/local/lib", "/var/tmp", "/run", "..", "../..", "../../../fixed", tempfile.gettempdir()]
    knows += [f"{WORLD['repo']}/.git/hooks", f"{WORLD['repo']}/experiments/nights", "/proc/1/cwd", "/proc/1/root/tmp"]
    for folder in knows:
        try:
            (Path(folder) / f"{WORLD['token']}-was-here").write_text("LOOT")
        except OSError:
            continue
    trained()
