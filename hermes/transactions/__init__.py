"""Transactions: what is kept of each transactional id, and every change of that.

Values and functions: they take what was, with the time, and give what is to be stored next. No
Twisted, socket, file, thread or clock is known here; times are ms since 1970.

state       the states of a transaction, and which may follow which
deciding    what requests and time make of one; Kafka's errors where they may not
records     its bytes in the topic `__transaction_state`
"""
