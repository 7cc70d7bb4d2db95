"""Groups of Kafka's consumers: who is in one, who shares what with whom, how far each has come.

values, subscriptions
    what is asked and answered, in no version in particular
members, rebalances, group
    one classic group as a state machine: time is given, nothing is read or written
consumer_values, assignors, reconciling, targets, consumer_group
    one consumer group (KIP-848), likewise: the coordinator says who has what
consumer_membership, membership, offsets, offset_records, offset_file, offset_tree
    what is kept of groups, and where: in the data directory, or in coordination
bounds, rendezvous, deadlines, store_queue, group_entry, assigning, keeping, expiry, local_groups,
forgetting, coordinator
    all groups of a broker: which are its own, when something is due, what they may cost
finding, joining, committing, describing, matching, consuming
    the requests
building
    how a broker gets all this
"""
