"""Groups of Kafka's consumers: who is in one, who shares what with whom, how far each has come.

`coordinator` takes what is asked of the groups of a broker (`local_groups`). A group is a state
machine without I/O and without a clock: `group` where its members share partitions themselves,
`consumer_group` (KIP-848) where the coordinator says who has what. What is stored of a group
(`offsets`) is in the data directory (`offset_file`) or in coordination (`offset_tree`). No request
and no version of one is known here.
"""
