"""Copies of a partition: who leads it, what followers have, who may lead next, what is committed.

Values, functions and small machines: they take events with the time, and give what is to be done.
No Twisted, socket, file, thread or clock is known here; times are seconds that never go backwards.

A `replica.Replica` is one broker's copy of one partition, in one of the states of its table. While
it leads, a `leading.Leading` counts what followers have (`leading`) and who waits for that
(`awaiting`); while it follows, a `following.Following` has one fetch under way. `electing` says
who may lead next, and when; `moving` carries out moves; `throttling` bounds what copies for them.
What stands in coordination, and every change of that, is in `state`.
"""
