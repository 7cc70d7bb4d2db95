"""Fetches of record batches by Hermes' own clients, which read what was committed only."""

from hermes.protocol import ContentFormat, ErrorCode
from hermes.protocol.record_requests import encode_aborted
from hermes.server.sends import Fetched
from hermes.storage import Log, LogSlice


def partly_aborted(
    log: Log, messages: LogSlice | bytes, offset: int, resident: bool
) -> Fetched | None:
    """What was found, if something of it was aborted; raises what reading of that raises."""
    try:
        aborted = log.transactions.aborted_in(messages, offset, resident)
    except BaseException:
        if isinstance(messages, LogSlice):
            messages.release()
        raise
    if not aborted:
        return None
    before = encode_aborted([(each.producer_id, each.first_offset) for each in aborted])
    return Fetched(ErrorCode.NONE, messages, log.stable_end, ContentFormat.PARTLY_ABORTED, before)
