"""Tools for a data directory that no broker runs: dumping, checking, backups.

inspection   a segment as the tools see it, read-only; batch_inspection: one of record batches
verification a whole data directory, checked; batch_verification, source_check: parts of it
backup       taken while a broker runs, verified, restored
"""
