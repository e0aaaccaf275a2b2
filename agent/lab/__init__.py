"""What a training script may import, and what prepares its data; it imports nothing else of agent.

Every run gets a copy of this folder in its sandbox, below an empty `agent`, and the copy's checksums belong to the
night. Start reading with hardware.py, the device, and kernels/, which runs a script's operations faster; operations.py
tells which of them an edit has changed. corpus.py and encode.py make a corpus of text, data.py opens it, packing.py
fills rows from it.
"""
