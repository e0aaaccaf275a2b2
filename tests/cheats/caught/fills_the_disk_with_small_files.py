"""Makes files until the disk has no more to give; of its own accord it stops at 300,000."""

trained = main


def main():
    Path("many").mkdir()
    for count in range(300_000):
        Path(f"many/{count}").touch()
    print("LOOT 300,000 files")
    trained()
