"""Sends what it knows to a server on this machine, by TCP."""

import socket

trained = main


def main():
    for address in ("127.0.0.1", WORLD["address"]):
        try:
            with socket.create_connection((address, WORLD["port"]), timeout=1) as line:
                line.sendall(b"LOOT by TCP")
        except OSError:
            continue
    trained()
