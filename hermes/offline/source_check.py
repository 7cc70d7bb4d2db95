"""Checks a `sources.positions` file against its log, for tools that change nothing."""

from collections.abc import Iterator

from hermes.offline.inspection import IndexFault
from hermes.storage.source_positions import POSITIONS_NAME
from hermes.storage.source_records import HEADER, Copied, Named, parse_records

_LOOK = (
    "what mirrors have stored here isn't known; restore the partition from a backup, or remove "
    "the file, and what was stored before may be stored again"
)


def source_faults(data: bytes, end: int, *, will_be_recovered: bool) -> Iterator[IndexFault]:
    """Yield at most one fault of each cause.

    Args:
        data: the file's bytes, read before the log's size was.
        end: the offset at which the log ends.
        will_be_recovered: whether the broker's next start drops what a crash has left, or a broker
            is using it now.
    """
    if not data.startswith(HEADER):
        yield IndexFault("problem", f"doesn't begin as it was written: {_LOOK}")
        return
    valid, names, beyond = len(HEADER), 0, 0
    for record, position in parse_records(data):
        if isinstance(record, Named):
            if record.number != names:
                break
            names += 1
        elif isinstance(record, Copied):
            if not 0 <= record.span.number < names:
                break
            beyond += record.span.log_end > end
        valid = position
    if valid < len(data):
        if will_be_recovered:
            yield IndexFault("notice", f"{len(data) - valid} bytes at its end are torn")
        else:
            yield IndexFault("problem", f"damaged at byte {valid}: {_LOOK}")
    if beyond:
        text = f"{beyond} ranges end beyond the log's end at {end}; the broker drops them"
        yield IndexFault("notice" if will_be_recovered else "problem", text)


def set_aside_fault() -> IndexFault:
    return IndexFault("problem", f"a {POSITIONS_NAME} that was damaged: {_LOOK}")
