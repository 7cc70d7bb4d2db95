"""Measurements of Hermes: each against something simpler, in one interleaved run, as a ratio.

`python -m bench --help` lists them; bench/README.md says how to read the tables. This package is
no part of what is installed: it starts brokers and baselines as processes of their own, on
loopback only, and uses of Hermes what its users have: `twistd hermes`, and `hermes.protocol` to
build requests.
"""
