"""From what applications send to the message sets that leave: grouping, sizes, outcomes. No I/O.

An application's call is an item. Items are collected in a `Batch`; `build` deals their payloads
into `OutgoingSet`s, one or more for each partition, in order. Whoever sends the sets writes each
one's outcome into it; the batch then knows what became of every item.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, repeat
from operator import is_not
from typing import Any, Final, NamedTuple, TypeAlias

from hermes.client.producing import SendResult
from hermes.errors import BrokerTimeoutError, ClientError, HermesError
from hermes.protocol import Codec, encode_message_set

__all__ = [
    "Batch",
    "OutgoingSet",
    "ProducerData",
    "SendHandle",
    "SetRules",
    "Target",
    "build",
    "resolve",
]

# What a message takes in a set beside its payload.
_OVERHEAD_BYTES: Final = 10
_IS_KEY: Final = partial(is_not, None)


class ProducerData(NamedTuple):
    """What one call sends.

        ProducerData("clicks", [b"first", b"second"], key="user-7")

    Attributes:
        topic: where to.
        messages: one value, or a list of values; all go to the same partition.
        key: chooses the partition; None for no key.
    """

    topic: str
    messages: Any
    key: Any = None


class Target(NamedTuple):
    """A partition of a broker.

    Attributes:
        broker_id: the broker.
        partition: the partition's number on it; -1 lets the broker choose.
    """

    broker_id: int
    partition: int


class OutgoingSet:
    """A message set on its way to one partition.

    Attributes:
        topic: where to.
        target: where to; may be chosen anew while `has_key` is false.
        has_key: whether a key chose the target.
        payloads: the messages, in order.
        size_bytes: what they take in the log, before compression.
        encoded: the set as bytes.
        outcome: where it went, or why it didn't; None as long as that is open.
    """

    __slots__ = ("encoded", "has_key", "outcome", "payloads", "size_bytes", "target", "topic")

    def __init__(self, topic: str, target: Target, has_key: bool) -> None:
        self.topic = topic
        self.target = target
        self.has_key = has_key
        self.payloads: list[bytes] = []
        self.size_bytes = 0
        self.encoded = b""
        self.outcome: SendResult | Exception | None = None


class SetRules(NamedTuple):
    """How sets are made.

    Attributes:
        codec_of: the codec for a topic.
        max_set_bytes: a set with more than one message is no larger, before compression.
        max_message_bytes: no payload is larger, compressed ones included.
    """

    codec_of: Callable[[str], Codec]
    max_set_bytes: int
    max_message_bytes: int


Choose: TypeAlias = Callable[[str, Any], Target]
Steady: TypeAlias = Callable[[str], Target | None]
_Owner: TypeAlias = "tuple[tuple[OutgoingSet, ...], int] | SendResult | Exception"


class Batch:
    """Items that leave together, and what became of each.

    Attributes:
        items: the items in order; empty again when all outcomes are known.
        message_count: how many messages they hold.
        size_bytes: how many bytes of payload.
        started: when the first item came, on the monotonic clock.
    """

    __slots__ = (
        "_callbacks",
        "_lock",
        "_outcomes",
        "items",
        "message_count",
        "size_bytes",
        "started",
    )

    def __init__(self) -> None:
        self.items: list[ProducerData] = []
        self.message_count = 0
        self.size_bytes = 0
        self.started = 0.0
        self._lock = threading.Condition()
        self._outcomes: Sequence[_Owner] | None = None
        self._callbacks: list[tuple[Callable[[SendHandle], None], SendHandle]] = []

    @property
    def is_done(self) -> bool:
        """Whether every outcome is known."""
        return self._outcomes is not None

    def finish(self, outcomes: Sequence[_Owner]) -> None:
        """Settle the outcomes, once, and tell whoever waits. Callbacks run in this thread."""
        with self._lock:
            self._outcomes = outcomes
            self.items = []
            callbacks, self._callbacks = self._callbacks, []
            self._lock.notify_all()
        for callback, handle in callbacks:
            callback(handle)

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until it is done; whether that came in time."""
        if self._outcomes is None:
            with self._lock:
                return self._lock.wait_for(lambda: self.is_done, timeout_seconds)
        return True

    def outcome(self, index: int) -> SendResult | Exception:
        """What became of an item of a batch that is done."""
        assert self._outcomes is not None
        return resolve(self._outcomes[index])

    def call_when_done(
        self, callback: "Callable[[SendHandle], None]", handle: "SendHandle"
    ) -> None:
        """Call it with the handle when the batch is done, or now if it is."""
        with self._lock:
            if self._outcomes is None:
                self._callbacks.append((callback, handle))
                return
        callback(handle)


class SendHandle(tuple[Batch, int]):
    """The outcome, sooner or later, of one asynchronous send. Threads may share it.

    handle = producer.send("clicks", b"payload")
    topic, partition, offset = handle.result(timeout_seconds=5)
    """

    __slots__ = ()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self[0].is_done

    def result(self, timeout_seconds: float | None = None) -> SendResult:
        """Wait for the outcome.

        Args:
            timeout_seconds: how long at most; None for as long as the producer's own limits
                allow.

        Returns:
            Where the messages went; without acknowledgement only where to they were sent.

        Raises:
            BrokerTimeoutError: the outcome is not known in time; it may still come.
            Exception: the send failed with it for good.
        """
        error = self.exception(timeout_seconds)
        if error is not None:
            raise error
        outcome = self[0].outcome(self[1])
        assert isinstance(outcome, SendResult)
        return outcome

    def exception(self, timeout_seconds: float | None = None) -> Exception | None:
        """Wait for the outcome; the exception that the send failed with, or None.

        Raises:
            BrokerTimeoutError: as for `result`.
        """
        batch, index = self
        if not batch.wait(timeout_seconds):
            raise BrokerTimeoutError(f"the outcome is not known after {timeout_seconds} s")
        outcome = batch.outcome(index)
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: "Callable[[SendHandle], None]") -> None:
        """Call it with this handle when the outcome is known, in the sender's thread, or now."""
        self[0].call_when_done(callback, self)

    def __repr__(self) -> str:
        state = repr(self[0].outcome(self[1])) if self.done else "pending"
        return f"<SendHandle {state}>"


def resolve(owner: _Owner) -> SendResult | Exception:
    """What became of an item, from the sets that hold its payloads."""
    if isinstance(owner, SendResult | Exception):
        return owner
    sets, position = owner
    for each in sets:
        if not isinstance(each.outcome, SendResult):
            return each.outcome or ClientError("the messages were not sent")
    first = sets[0].outcome
    assert isinstance(first, SendResult)
    if position and first.offset is not None:
        return first._replace(offset=first.offset + position)
    return first


def build(
    items: Sequence[ProducerData], choose: Choose, rules: SetRules, steady: Steady | None = None
) -> tuple[list[OutgoingSet], list[_Owner]]:
    """Deal items into message sets.

    Args:
        items: with payloads (bytes, or a list of bytes) as messages.
        choose: the target for a topic and a key; raises HermesError when there is none.
        rules: how large sets become, and how they are compressed.
        steady: the only target for messages of a topic without key; None when there are several.

    Returns:
        The sets, encoded, those of one partition in order; and for each item what `resolve`
        makes its outcome of.
    """
    if steady is not None and len(items) > 1:
        uniform = _build_uniform(items, steady, rules)
        if uniform is not None:
            return uniform
    filling: dict[tuple[str, Target], OutgoingSet] = {}
    sets: list[OutgoingSet] = []
    owners: list[_Owner] = []
    max_bytes = rules.max_set_bytes
    for topic, messages, key in items:
        try:
            place = (topic, choose(topic, key))
        except HermesError as error:
            owners.append(error)
            continue
        current = filling.get(place)
        if type(messages) is bytes:
            size = len(messages) + _OVERHEAD_BYTES
        else:
            size = sum(map(len, messages)) + _OVERHEAD_BYTES * len(messages)
        if current is None or current.size_bytes + size > max_bytes:
            current = filling[place] = OutgoingSet(*place, key is not None)
            sets.append(current)
        elif key is not None:
            current.has_key = True
        owners.append(((current,), current.size_bytes))
        if type(messages) is bytes:
            current.payloads.append(messages)
        else:
            current.payloads += messages
        current.size_bytes += size
    return _encoded(sets, owners, rules)


def _build_uniform(
    items: Sequence[ProducerData], steady: Steady, rules: SetRules
) -> tuple[list[OutgoingSet], list[_Owner]] | None:
    """Do what `build` does for single messages of one topic without keys, and one target.

    That is what most asynchronous producers send, and no statement here runs once a message.

    Returns:
        As `build`; None when the items are anything else.
    """
    topics, messages, keys = zip(*items, strict=True)
    topic = topics[0]
    if topics.count(topic) != len(items) or set(map(type, messages)) != {bytes}:
        return None
    if any(map(_IS_KEY, keys)) or rules.codec_of(topic) is not Codec.NONE:
        return None
    target = steady(topic)
    if target is None:
        return None
    ends = list(accumulate(map(len, messages)))
    size = ends[-1] + _OVERHEAD_BYTES * len(items)
    if size > rules.max_set_bytes:
        middle = len(items) // 2
        first = build(items[:middle], lambda topic, key: target, rules, steady)
        second = build(items[middle:], lambda topic, key: target, rules, steady)
        return first[0] + second[0], first[1] + second[1]
    whole = OutgoingSet(topic, target, has_key=False)
    whole.payloads = list(messages)
    whole.size_bytes = size
    whole.encoded = encode_message_set(whole.payloads)
    # Each message starts where the payloads before it end, and their overheads.
    starts = map(int.__add__, [0, *ends], range(0, size, _OVERHEAD_BYTES))
    return [whole], list(zip(repeat((whole,), len(items)), starts, strict=False))


def _encoded(
    sets: list[OutgoingSet], owners: list[_Owner], rules: SetRules
) -> tuple[list[OutgoingSet], list[_Owner]]:
    """Encode the sets; one that must be split for its size is replaced by its parts."""
    parts_of: dict[int, list[OutgoingSet]] = {}
    encoded: list[OutgoingSet] = []
    for each in sets:
        codec = rules.codec_of(each.topic)
        if codec is Codec.NONE and each.size_bytes <= rules.max_set_bytes:
            each.encoded = encode_message_set(each.payloads)
            encoded.append(each)
        else:
            parts = _split(each, codec, rules)
            parts_of[id(each)] = parts
            encoded += parts
    if parts_of:
        for index, owner in enumerate(owners):
            if type(owner) is tuple and id(owner[0][0]) in parts_of:
                # Which part holds the item is not worth keeping: its outcome is that of all.
                owners[index] = (tuple(parts_of[id(owner[0][0])]), 0)
    return encoded, owners


def _split(whole: OutgoingSet, codec: Codec, rules: SetRules) -> list[OutgoingSet]:
    """Encode a set, in halves as long as it is too large."""
    if whole.size_bytes <= rules.max_set_bytes or len(whole.payloads) == 1:
        whole.encoded = encode_message_set(whole.payloads, codec)
        fits = codec is Codec.NONE or (
            len(whole.encoded) - _OVERHEAD_BYTES <= rules.max_message_bytes
        )
        if not fits and len(whole.payloads) == 1:
            # Compressing made it larger than allowed, so it goes as it is: its own size was fine.
            whole.encoded = encode_message_set(whole.payloads)
            fits = True
        if fits:
            return [whole]
    halves = []
    middle = len(whole.payloads) // 2
    for payloads in (whole.payloads[:middle], whole.payloads[middle:]):
        half = OutgoingSet(whole.topic, whole.target, whole.has_key)
        half.payloads = payloads
        half.size_bytes = sum(map(len, payloads)) + _OVERHEAD_BYTES * len(payloads)
        halves += _split(half, codec, rules)
    return halves
