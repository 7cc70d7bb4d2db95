"""When the messages of a partition were appended: requests repeated until the range is covered."""

from functools import partial
from typing import NamedTuple

from hermes.client.arguments import check_number, check_partition
from hermes.client.conversations import Conversation, Exchange, named, needs
from hermes.errors import ConfigError, RemoteProtocolError
from hermes.protocol import AppendTimesRequest, AppendTimesResponse, decode_append_times_response


class AppendTime(NamedTuple):
    """A stretch of a partition whose messages were appended at one time.

    Attributes:
        end_offset: the offset after its last byte, > start_offset.
        time_ms: ms since 1970, rounded down to a multiple of the requested interval; None if the
            broker doesn't know.
    """

    start_offset: int
    end_offset: int
    time_ms: int | None


@needs(AppendTimesRequest.TYPE, "finding out when messages were appended")
def append_times(
    topic: str, partition: int, start: int, end: int, interval_ms: int
) -> Conversation[list[AppendTime]]:
    """A response covers a part; the next resumes there."""
    check_partition(topic, partition)
    for name, value in (("start", start), ("end", end), ("interval_ms", interval_ms)):
        check_number(name, value)
    if interval_ms < 1:
        raise ConfigError("interval_ms", f"expected 1 or more, got {interval_ms}")
    decode = partial(decode_append_times_response, detail=named(topic, partition))
    times: list[AppendTime] = []
    is_whole = False
    while not is_whole:
        request = AppendTimesRequest(topic, partition, start, end, interval_ms)
        answer: AppendTimesResponse = yield Exchange(request.encode(), decode)
        # The end as it was at first: what is appended meanwhile was not asked for.
        end = answer.end
        start = _extend(times, start, answer)
        is_whole = start >= end
    return times


def _extend(times: list[AppendTime], start: int, answer: AppendTimesResponse) -> int:
    if start < answer.end and not answer.runs:
        raise RemoteProtocolError(f"append times from offset {start} on were answered with none")
    for end_offset, time_ms in answer.runs:
        if end_offset <= start:
            raise RemoteProtocolError(f"append times go back from offset {start} to {end_offset}")
        if times and times[-1].time_ms == time_ms:
            times[-1] = times[-1]._replace(end_offset=end_offset)
        else:
            times.append(AppendTime(start, end_offset, time_ms))
        start = end_offset
    return start
