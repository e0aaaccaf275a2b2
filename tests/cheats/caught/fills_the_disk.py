"""Writes one file until the disk is full; of its own accord it stops at 2 GB."""

trained = main


def main():
    with Path("big").open("wb") as file:
        for _ in range(32):
            file.write(bytes(1 << 26))
    print("LOOT 2 GB")
    trained()
