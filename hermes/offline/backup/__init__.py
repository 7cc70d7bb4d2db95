"""Backups of a data directory: taken while a broker uses it, verified, restored.

A newcomer reads in this order:

    manifest     what a backup holds, as a file that is written last and atomically
    repository   a directory of backups: names, order, what a kill has left, how many to keep
    copying      files -> files with checksums; a link where an older backup has the same file
    extents      up to where a partition is on disk, and which files hold that
    partition_copy
                 one partition, copied the newest segment first
    taking       one backup, from a data directory to a manifest
    restoring    a backup's files, verified, into a new data directory

Neither sockets nor clocks: who knows the broker and the time passes them in. docs/backup.md
says what a backup promises.
"""

from hermes.offline.backup.manifest import BackupManifest, ManifestFile, PartitionExtent
from hermes.offline.backup.repository import Repository
from hermes.offline.backup.restoring import restore, verify
from hermes.offline.backup.taking import BackupSource, take_backup

__all__ = [
    "BackupManifest",
    "BackupSource",
    "ManifestFile",
    "PartitionExtent",
    "Repository",
    "restore",
    "take_backup",
    "verify",
]
