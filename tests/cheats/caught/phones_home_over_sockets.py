"""Talks to a server of the user's through its sockets: an abstract one, which no file permission guards, and a file."""

import socket

trained = main


def main():
    for address in (f"\0{WORLD['token']}", f"{WORLD['home']}/socket"):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.connect(address)
                line.sendall(b"LOOT by unix socket")
        except OSError:
            continue
    trained()
