"""`hermes tail`: the last and the next messages of several topics, told apart and filtered."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from hermes.cli.message_formats import ConsumedMessage, consumed_messages, json_line
from hermes.cli.options import (
    BROKER_OPTION,
    JSON_OPTION,
    MAX_EXPANDED_OPTION,
    QUIET_OPTION,
    TOPICS_ARGUMENT,
    BrokerOption,
    CommandConnection,
    option_type,
)
from hermes.cli.partition_reader import PartitionReader, read_partitions, with_times
from hermes.cli.place_options import PartitionPlace
from hermes.cli.retrying import Retrying
from hermes.cli.security_options import connection_options
from hermes.cli.start_positions import note_missing, noted_ranges, open_readers
from hermes.cli.terminal import format_time_ms
from hermes.cli.topic_source import TopicSource
from hermes.client import SimpleConsumer
from hermes.quoting import printable

_MAX_WAIT_MS: Final = 10_000
# Those that can be read on a dark and on a light background.
_COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "red")


def _parse_regex(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


_REGEX: Final = option_type(_parse_regex, "regex")


@click.command("tail", short_help="Follow several topics.")
@BROKER_OPTION
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Begin with the last N messages of every partition.",
)
@click.option(
    "-m",
    "--match",
    "wanted",
    type=_REGEX,
    multiple=True,
    metavar="REGEX",
    help="Show only messages that match one of these.",
)
@click.option(
    "-x",
    "--exclude",
    "unwanted",
    type=_REGEX,
    multiple=True,
    metavar="REGEX",
    help="Leave out messages that match one of these.",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="N", help="Exit after showing N messages."
)
@click.option(
    "-e",
    "--exit",
    "exit_at_end",
    is_flag=True,
    help="Exit after the last message that existed when the command started.",
)
@click.option("--times", is_flag=True, help="Show when the broker appended each message.")
@click.option(
    "--colour",
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)
@click.option("--skip-corrupt", is_flag=True, help="Skip damaged messages instead of giving up.")
@JSON_OPTION
@QUIET_OPTION
@MAX_EXPANDED_OPTION
@connection_options
@TOPICS_ARGUMENT
def command(
    broker: BrokerOption,
    topics: tuple[str, ...],
    max_expanded_bytes: int,
    connection: CommandConnection,
    **options: Any,
) -> None:
    r"""Show the last messages of TOPICs and then new ones as they come, each with where it is.

    Messages of one partition come in order. Without -e and -c it runs until Ctrl-C, and waits for
    a broker that becomes unavailable.

    \b
    Examples:
      hermes tail clicks views                    the last ten of each, then new ones
      hermes tail clicks -m 'status=5..' -x bot   errors, but not those of robots
      hermes tail clicks -n 100 -e --json         the last hundred, for a program
    """
    with broker.consumer(connection, max_expanded_bytes=max_expanded_bytes) as consumer:
        _tail(consumer, list(dict.fromkeys(topics)), **options)


def _tail(
    consumer: SimpleConsumer,
    topics: Sequence[str],
    *,
    last: int,
    wanted: Sequence[re.Pattern[bytes]],
    unwanted: Sequence[re.Pattern[bytes]],
    count: int | None,
    exit_at_end: bool,
    times: bool,
    colour: str,
    skip_corrupt: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    readers: list[PartitionReader] = []
    for topic in topics:
        source = TopicSource(consumer, topic)
        ranges, exists = noted_ranges(source)
        if not exists:
            note_missing(source, exit_at_end=exit_at_end, quiet=quiet)
        readers += open_readers(
            source,
            ranges,
            PartitionPlace("last", last),
            to_end=exit_at_end,
            skip_corrupt=skip_corrupt,
        )
    retrying = Retrying(0 if exit_at_end else None, quiet=quiet)
    chunks = read_partitions(consumer, readers, _MAX_WAIT_MS, retrying)
    if times:
        chunks = with_times(consumer, chunks, retrying)
    render = json_line if as_json else _LineFormatter(topics, wanted, colour=colour, times=times)
    output = sys.stdout.buffer
    for chunk in chunks:
        for message in _chosen(consumed_messages(chunk), wanted, unwanted):
            output.write(render(message))
            count = None if count is None else count - 1
            if count == 0:
                break
        output.flush()  # what has come is to be seen now, by the next program in a pipe as well
        if count == 0:
            break


def _chosen(
    messages: Iterator[ConsumedMessage],
    wanted: Sequence[re.Pattern[bytes]],
    unwanted: Sequence[re.Pattern[bytes]],
) -> Iterator[ConsumedMessage]:
    for message in messages:
        payload = message.payload or b""
        if wanted and not any(each.search(payload) for each in wanted):
            continue
        if not any(each.search(payload) for each in unwanted):
            yield message


class _LineFormatter:
    """Formats a message as a line: where it is, and its payload.

    On a terminal a message is one line whatever it holds, topics have colours, and matches are
    highlighted. A file or a pipe gets the payload as it is.
    """

    def __init__(
        self,
        topics: Sequence[str],
        wanted: Sequence[re.Pattern[bytes]],
        *,
        colour: str,
        times: bool,
    ) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._is_coloured = colour == "always" or (
            colour == "auto" and self._is_terminal and not os.environ.get("NO_COLOR")
        )
        self._colours = {
            topic: _COLOURS[number % len(_COLOURS)] for number, topic in enumerate(topics)
        }
        self._wanted = wanted
        self._times = times

    def __call__(self, message: ConsumedMessage) -> bytes:
        where = f"{message.topic}-{message.partition} {message.offset}"
        if self._is_terminal:
            where = printable(where)
        if self._is_coloured:
            where = click.style(where, fg=self._colours[message.topic])
        if self._times:
            known = message.time_ms >= 0
            where = f"{format_time_ms(message.time_ms) if known else '-':24} {where}"
        payload = message.payload or b""
        shown = self._highlighted(payload) if self._is_coloured else self._shown(payload)
        return b"%s  %s\n" % (where.encode("utf-8", "surrogateescape"), shown)

    def _shown(self, data: bytes) -> bytes:
        if not self._is_terminal:
            return data
        return printable(data.decode("utf-8", "backslashreplace")).encode()

    def _highlighted(self, payload: bytes) -> bytes:
        parts, position = [], 0
        for start, end in self._spans(payload):
            parts.append(self._shown(payload[position:start]))
            marked = self._shown(payload[start:end]).decode("utf-8", "surrogateescape")
            styled = click.style(marked, bold=True, underline=True)
            parts.append(styled.encode("utf-8", "surrogateescape"))
            position = end
        return b"".join([*parts, self._shown(payload[position:])])

    def _spans(self, payload: bytes) -> Iterator[tuple[int, int]]:
        spans = sorted(found.span() for each in self._wanted for found in each.finditer(payload))
        position = 0
        for start, end in spans:
            if start >= position and end > start:
                yield start, end
                position = end
