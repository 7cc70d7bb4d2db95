"""The bytes of a Fetch.

Records stay where they are; the response is encoded around them:

    response  int32 throttle time | int16 error, int32 session (from v7) | topics
    topic     string name (to v12) or UUID (from v13) | partitions
    partition int32 number | int16 error | int64 high watermark | int64 last stable offset
              | int64 log start offset (from v5) | aborted transactions
              | int32 preferred replica (from v11) | [bytes] records

Strings, bytes and arrays as `hermes.protocol.kafka_primitives` has them, flexible from v12.

Source: Kafka 4's FetchResponse.json.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from hermes.kafka.apis import APIS, FETCH
from hermes.kafka.current_leader import CurrentLeader
from hermes.kafka.fetch_sessions import Wanted
from hermes.kafka.legacy import LegacyRange
from hermes.partition.partition import Partition
from hermes.protocol import core
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import encode_length, encode_topic
from hermes.storage import LogSlice
from hermes.storage.aborted_index import AbortedTransaction

#: The session's epoch where none is wanted.
NO_SESSION: Final = -1

# The first versions with compact lengths and tags, and that name topics by their UUIDs.
_FLEXIBLE: Final = 12
BY_ID: Final = 13

#: The tag that says which broker leads.
_LEADER_TAG: Final = 1
_NO_ID: Final = UUID(int=0)

_PARTITION: Final = Struct(">ihqqq")
_OLD_PARTITION: Final = Struct(">ihqq")
_ABORTED: Final = Struct(">qq")
_SESSION: Final = Struct(">ihi")
_NO_REPLICA: Final = b"\xff\xff\xff\xff"
_NO_SIZE: Final = bytes(4)


def _form(version: int, is_committed: bool) -> tuple[bool, bytes, bytes]:
    """Whether lengths are compact, the tags that there are none of, and what is before records."""
    is_flexible = version >= _FLEXIBLE
    # Nothing that was aborted is in it: an empty array, or null where that isn't asked for.
    aborted = encode_length(0 if is_committed else -1, is_flexible)
    return is_flexible, b"\0" * is_flexible, aborted + _NO_REPLICA * (version >= 11)


#: By a version, and whether only what was committed is wanted.
FORMS: Final = {
    (version, is_committed): _form(version, is_committed)
    for version in range(APIS[FETCH].lowest, APIS[FETCH].highest + 1)
    for is_committed in (False, True)
}


#: Reads a request's body; None where that is left to its schema.
read_plain: Final = partial(core.plain_fetch, Wanted)


#: What a request says: what `read_plain` finds.
Asked: TypeAlias = tuple[
    int, int, int, int, int, int, Sequence[Wanted], Sequence[tuple[str | bytes, int]]
]


def fields_of(request: Any, version: int) -> Asked:
    """What a request says that the schema has read."""

    def topic_of(each: Any) -> str | bytes:
        topic: str | bytes = each.topic if version < BY_ID else (each.topic_id or _NO_ID).bytes
        return topic

    wanted = [
        Wanted(
            topic_of(each),
            part.partition,
            part.fetch_offset,
            max(part.partition_max_bytes, 0),
            getattr(part, "current_leader_epoch", -1),
        )
        for each in request.topics
        for part in each.partitions
    ]
    forgotten = [
        (topic_of(each), number)
        for each in getattr(request, "forgotten_topics_data", ())
        for number in each.partitions
    ]
    return (
        round(request.max_wait.total_seconds() * 1000),
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        getattr(request, "session_id", 0),
        getattr(request, "session_epoch", NO_SESSION),
        wanted,
        forgotten,
    )


class Fetched(NamedTuple):
    """What there is of one partition; with an error -1 and None.

    `topic` is its name, or the bytes of its id. `records` are batches, or a range of a log of 0.7,
    of which they are yet to be made; a slice belongs to the response from then on. `leader` is who
    is to be asked instead; `aborted` are transactions in the records, None where what isn't
    committed is wanted, too.
    """

    topic: str | bytes
    partition: int
    code: Code
    high_watermark: int = -1
    start_offset: int = -1
    records: LogSlice | LegacyRange | bytes | None = None
    source: Partition | None = None
    leader: CurrentLeader | None = None
    stable_end: int = -1
    aborted: Sequence[AbortedTransaction] | None = None

    @property
    def end(self) -> int:
        """Up to where there is something to read."""
        return self.high_watermark if self.aborted is None else self.stable_end

    @property
    def size_bytes(self) -> int:
        records = self.records
        if records is None:
            return 0
        return len(records) if isinstance(records, bytes) else records.length

    def emptied(self) -> "Fetched":
        if self.records is None:
            return self
        return self._replace(records=None, aborted=None if self.aborted is None else ())

    def release(self) -> None:
        if not isinstance(self.records, bytes | None):
            self.records.release()


def _encode_aborted(version: int, aborted: Sequence[AbortedTransaction]) -> bytes:
    """The array of what was aborted, and what is between it and the records."""
    is_flexible, tags, _ = FORMS[version, True]
    each = b"".join(_ABORTED.pack(one.producer_id, one.first_offset) + tags for one in aborted)
    return encode_length(len(aborted), is_flexible) + each + _NO_REPLICA * (version >= 11)


def response_parts(
    version: int,
    correlation_id: int,
    fetched: Sequence[Fetched],
    *,
    is_committed: bool = False,
    session: int = 0,
    code: Code = Code.NONE,
    end: bytes = b"\0",
) -> list[bytes | LogSlice]:
    """Encode a response, its size and its header included.

    Args:
        fetched: in the order of the request.
        is_committed: whether only what transactions have committed was asked for.
        session: to which it belongs.
        code: the error of the response as a whole.
        end: the response's tags, in flexible versions.
    """
    is_flexible, tags, between = FORMS[version, is_committed]
    topics: list[tuple[str | bytes, list[Fetched]]] = []
    for each in fetched:
        if not topics or topics[-1][0] != each[0]:
            topics.append((each[0], [each]))
        else:
            topics[-1][1].append(each)
    about = _SESSION.pack(0, code, session) if version >= 7 else bytes(4)
    number = correlation_id.to_bytes(4, signed=True)
    parts: list[bytes | LogSlice] = []
    begun = [_NO_SIZE, number, tags, about, encode_length(len(topics), is_flexible)]
    nothing = between + encode_length(0, is_flexible) + tags
    for topic, found in topics:
        begun += encode_topic(topic, is_flexible), encode_length(len(found), is_flexible)
        for _, partition, error, mark, start, records, _, leader, stable, aborted in found:
            if version >= 5:
                begun.append(_PARTITION.pack(partition, error, mark, stable, start))
            else:
                begun.append(_OLD_PARTITION.pack(partition, error, mark, stable))
            if records is None and leader is None:  # nearly all, of very many
                begun.append(nothing)
                continue
            begun.append(_encode_aborted(version, aborted) if aborted else between)
            if isinstance(records, LogSlice):
                begun.append(encode_length(records.length, is_flexible))
                parts += b"".join(begun), records
                begun = [tags]
            elif records:
                assert isinstance(records, bytes)
                begun += encode_length(len(records), is_flexible), records, tags
            else:
                begun.append(encode_length(0, is_flexible))
                begun.append(leader.as_tags(_LEADER_TAG) if leader and is_flexible else tags)
        begun.append(tags)
    begun.append(end if is_flexible else tags)
    if not parts:
        begun[0] = (sum(map(len, begun)) - len(_NO_SIZE)).to_bytes(4)
        return [b"".join(begun)]
    parts.append(b"".join(begun))
    size = sum(len(each) if isinstance(each, bytes) else each.length for each in parts)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = (size - len(_NO_SIZE)).to_bytes(4) + first[len(_NO_SIZE) :]
    return parts
