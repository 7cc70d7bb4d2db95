"""Values <-> files: partitions' logs in Kafka's disk formats. No Twisted, no socket, no clock.

A newcomer reads in this order:

    files        the operating system, as one object that tests replace
    segment      a part of a log, its names, and the view that readers have of all of them;
                 descriptors: which files are open, and slices of them
    time_index   what we keep beside a segment; index_entries: its bytes, read in order
    log          the log, as others see it; log_state: its rules, its locks, what they guard
    tail         what isn't flushed; log_flush: the flush; log_directory: where it lies
    log_opening, log_deletion, log_exchange
                 a log comes into service, loses its oldest segments, has one replaced
    log_replica  a log is made the same as another copy: cut, begun again, appended to in place;
                 mending: damaged places of it get back what was there
    sidecar      what lies beside a log's segments and follows its life
    reader       reading through a view; append_times: the times of ranges; boundary: message
                 boundaries
    log_format   what is known of the bytes in a segment, and where an offset lies; kafka_0_7: that
                 of Kafka 0.7; formats: which there are, and which one a directory has
    kafka_format Kafka's today: record batches; batch_walk: walking through them; kafka_index: what
                 is kept beside them; sorted_file: files of entries; kafka_partition, checkpoints:
                 Kafka's small files; message_times: looking by messages' own timestamps
    compaction   of each key the latest message stays
    loading      from a directory's files to a log; segment_files: what they are; recovery: what a
                 crash can damage, made whole
    retention    what may go
    log_sources  what a mirror has appended, so that nothing is stored twice; source_positions: the
                 file of it; source_spans: the value of it; source_records: its bytes
    producer_states
                 what a log knows of idempotent producers; producer_snapshots: the files of it;
                 producer_ids: which of them were given out
    log_transactions
                 transactions of a log begin, end, and are told to readers; transactions: which are
                 open; aborted_index: which were aborted
    layout       the names in a data directory; directory: all logs of a broker; lock: only one;
                 owner: whose it is; topic_entries: what was set for single topics; whole_files:
                 how such are written

docs/log-format.md has the byte tables.
"""

from hermes.storage.descriptors import DescriptorCache, LogSlice
from hermes.storage.directory import DataDirectory, OpenReport
from hermes.storage.files import FileLayer, NotInMemoryError
from hermes.storage.layout import (
    CLEAN_SHUTDOWN_MARKER,
    parse_partition_directory,
    partition_directory,
)
from hermes.storage.log import Log
from hermes.storage.reader import EARLIEST_TIME, LATEST_TIME
from hermes.storage.recovery import RecoveryReport, scan
from hermes.storage.retention import AppendAges, apply_retention
from hermes.storage.segment import FlushedEnd, HighWatermark, parse_segment_name, segment_name
from hermes.storage.settings import LogSettings
from hermes.storage.source_spans import SourceRange, ToldSources
from hermes.storage.topic_entries import TopicEntries

__all__ = [
    "CLEAN_SHUTDOWN_MARKER",
    "EARLIEST_TIME",
    "LATEST_TIME",
    "AppendAges",
    "DataDirectory",
    "DescriptorCache",
    "FileLayer",
    "FlushedEnd",
    "HighWatermark",
    "Log",
    "LogSettings",
    "LogSlice",
    "NotInMemoryError",
    "OpenReport",
    "RecoveryReport",
    "SourceRange",
    "ToldSources",
    "TopicEntries",
    "apply_retention",
    "parse_partition_directory",
    "parse_segment_name",
    "partition_directory",
    "scan",
    "segment_name",
]
