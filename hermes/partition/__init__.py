"""A partition decides what becomes of appends and reads, for callers of either protocol.

partition         appends, and counts that; batch_appends: of a producer's batches each once
leadership        who may do so, of one that has several copies
flushing, flush_queue, flush_threads
                  when logs are flushed, which of them first, and by whom
acknowledgements  waits until what was appended is on disk
log_reader        reads of many partitions for one response; waiting: until there is enough
"""
