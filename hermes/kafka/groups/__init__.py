"""Groups of Kafka's consumers: who is in one, who shares what with whom, how far each has come.

values, subscriptions
    what is asked and answered, in no version in particular
members, rebalances, group
    one group as a state machine: time is given, nothing is read or written
membership, offsets, offset_records, offset_file, offset_tree
    what is kept of groups, and where: in the data directory, or in coordination
homes, deadlines, store_queue, kept, expiry, own_groups,
coordinator
    all groups of a broker: which are its own, when something is due, what they may cost
finding, joining, committing, describing
    the requests
building
    how a broker gets all this
"""
