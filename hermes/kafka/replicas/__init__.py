"""Copies of partitions: what `hermes.replication` decides, carried out by a broker.

copies     all copies that a broker has, kept as coordination says
copy       one of them: its log, its part in the epoch, what waits for it
copy_mending  what of a copy is damaged gets back what it lacks
changing   changes of partitions' states in coordination, and their outcomes
links      a follower's connections to leaders
serving    a leader's side of these
copy_metrics  their metrics
fetches    the bytes that go between them
"""
