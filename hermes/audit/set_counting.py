"""Counts messages of Kafka 0.7: by their stamps, those in compressed sets as well."""

from hermes.audit.events import Tallies
from hermes.errors import InvalidMessageError
from hermes.protocol import (
    DEFAULT_MAX_EXPANDED_BYTES,
    MAX_NESTING,
    Codec,
    core,
    encode_message_set,
)
from hermes.protocol.compression import Budget, expand
from hermes.protocol.damage import resume_after, resume_beyond
from hermes.protocol.messages import SIZE, decode_message


def count_set(data: bytes, window_ms: int, found: Tallies) -> int:
    """Count the whole messages of a set, those in compressed ones included.

    Returns how many damaged messages, or stretches whose lengths are damaged, were skipped.
    """
    return _count(data, window_ms, found, Budget(DEFAULT_MAX_EXPANDED_BYTES), 0)


def _count(data: bytes, window_ms: int, found: Tallies, budget: Budget, depth: int) -> int:
    damaged = 0
    position = core.tally(data, 0, window_ms, found)
    while len(data) - position >= SIZE.size:
        following = position + SIZE.size + SIZE.unpack_from(data, position)[0]
        after: int | None = following
        if not position < following <= len(data):
            is_damaged, after = resume_beyond(data, position)
            if not is_damaged:
                break
            damaged += 1
        else:
            try:
                damaged += _count_one(data, position, following, window_ms, found, budget, depth)
            except InvalidMessageError:
                damaged += 1
                after = resume_after(data, position, following)
        if after is None:
            break
        position = core.tally(data, after, window_ms, found)
        if not depth:
            budget = Budget(DEFAULT_MAX_EXPANDED_BYTES)  # each message of a log has its own
    return damaged


def _count_one(
    data: bytes,
    start: int,
    end: int,
    window_ms: int,
    found: Tallies,
    budget: Budget,
    depth: int,
) -> int:
    """Raises InvalidMessageError if it is damaged, nested too deep or expands to too much."""
    message = decode_message(data, start, end)
    if message.codec is Codec.NONE:
        core.tally(encode_message_set([message.payload]), 0, window_ms, found)
        return 0
    if depth == MAX_NESTING:
        raise InvalidMessageError(f"compressed sets are nested more than {MAX_NESTING} deep")
    inner = bytes(expand(message.codec, message.payload, budget))
    return _count(inner, window_ms, found, budget, depth + 1)
