"""What Hermes is held against: the least that could do the same job on the same machine.

Each baseline is a program (`python -m bench.baselines.NAME`) that prints one line of JSON, its
port, once it listens on loopback, and runs until SIGTERM.
"""
