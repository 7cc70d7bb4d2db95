"""What a partition decides, for callers of either protocol: when to flush, whom to wake.

flushing, flush_queue  when logs are flushed, and which of them first
waiting                fetches that wait until there is enough
idempotence            batches of producers, each appended once
damage                 looks for damaged messages in what is on disk
"""
