"""The parts of ../torch_twin.py, which is the program: dials, attention, model, optimizer, training loop, devices."""
