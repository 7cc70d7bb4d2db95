"""`hermes consume --group`: a member of a consumer group that writes what it gets to stdout."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from hermes.cli.reading import Chunk
from hermes.cli.terminal import status
from hermes.client.groups import Consumer, ConsumerConfig, MessageStream
from hermes.protocol import Message

__all__ = ["consume_as_member"]


def consume_as_member(
    config: ConsumerConfig,
    topic: str,
    count: int | None,
    render: Callable[[str, Chunk], bytes],
    *,
    quiet: bool,
) -> None:
    """Write a topic's messages, shared with the other members, until `count`, Ctrl-C or SIGTERM.

    Args:
        config: the consumer's settings; its decoder must leave payloads as they are.
        topic: what to read.
        count: how many messages; None for no end.
        render: makes what is written.
        quiet: no status on the terminal.

    A message that was written is committed; a kill may bring some again.

    Raises:
        SystemExit: SIGTERM came; the group has been left.
    """
    with _ended_by_sigterm(), Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        status(f"{connector.consumer_id} has joined group {config.group}", quiet=quiet)
        _write(stream, count, render)
        connector.commit_offsets()  # the last one was written, too


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end what is under way as Ctrl-C would, so that the group is left at once.

    Else the member's partitions would be nobody's until its session ends.
    """

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)  # as a shell reports it

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(stream: MessageStream, count: int | None, render: Callable[[str, Chunk], bytes]) -> None:
    stdout = sys.stdout.buffer
    for number, each in enumerate(stream, 1):
        message = Message((each.message, 1, 0, 0))
        chunk = Chunk(each.partition, each.offset, [(message, each.next_offset)])
        stdout.write(render(each.topic, chunk))
        stdout.flush()
        if number == count:
            return
