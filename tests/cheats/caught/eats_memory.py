"""Takes memory and never gives it back; of its own accord it stops at 3 GB."""

trained = main


def main():
    pieces = []
    for _ in range(48):
        pieces.append(np.ones(1 << 23))
        time.sleep(0.01)
    print(f"LOOT {len(pieces) / 16} GB")
    trained()
