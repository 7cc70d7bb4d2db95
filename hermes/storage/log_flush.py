"""One flush of a log: what was appended goes to the disk.

The order is the promise: what the sidecars must have on disk first, the segments' bytes and names
(`hermes.storage.tail`), the time indexes; only then the flushed end moves, and where there is no
other copy, the high watermark with it.
"""

from hermes.errors import LogOfflineError, StorageError
from hermes.storage.files import is_no_descriptor, storage_error
from hermes.storage.log_state import LogState
from hermes.storage.segment import FlushedEnd, HighWatermark, LogView
from hermes.storage.transactions import ALL_DECIDED


def flush(state: LogState) -> FlushedEnd:
    """Under the flush lock: flush what was appended so far.

    Returns:
        Where the log ended when it began: all before that is on disk.

    Raises:
        LogOfflineError, StorageError: as for `Log.flush`.
    """
    with state.lock:
        if state.offline_reason is not None:
            raise state.offline_error()
        tail = state.tail
        try:
            for each in state.accounted:
                each.account(tail.end, state.view.flushed_end)
        except OSError as error:
            raise state.refused("flush the positions of sources", error) from error
        work = tail.take()
    try:
        for each in state.synced:
            each.sync()
        tail.sync(work)
    except OSError as error:
        what = f"{state.name}: flush up to offset {work.end}"
        with state.lock:
            tail.put_back(work)
            if is_no_descriptor(error):
                raise storage_error(what, error) from error
            reason = f"{what}: {error.strerror or error}"
            state.go_offline(reason)
        raise LogOfflineError(reason) from error
    state.index_failures += tail.write_indexes(work, state.view.flushed_end)
    with state.lock:
        tail.finish(work)
        bases, segments, _, high_watermark, stable_end = state.view
        if state.is_sole_copy:
            high_watermark = HighWatermark(work.end)
            if state.transactions.first_open == ALL_DECIDED:  # as nearly always: no call
                stable_end = work.end  # type: ignore[assignment]
            else:
                stable_end = state.stable_end(high_watermark, bases[0])
        state.view = LogView(bases, segments, work.end, high_watermark, stable_end)
    for each in state.told_of_flushes:
        try:
            each.flushed(state.lock, state.current_view)
        except (OSError, StorageError):
            state.index_failures += 1
    return work.end
