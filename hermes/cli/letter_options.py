"""The options that choose dead letters, and what `hermes replay --preview` prints of them."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final

import click

from hermes.cli.options import TOPIC, Decorator
from hermes.cli.partition_reader import Chunk
from hermes.cli.place_options import TIME
from hermes.cli.terminal import write_json, write_line
from hermes.client.retrying import Letter
from hermes.client.retrying.letter_headers import letter_of
from hermes.client.retrying.redrive import LetterCounts, LetterFilter
from hermes.quoting import printable

_MOST_REASONS: Final = 20
_SAMPLES: Final = 3
_OPTIONS: Final = ("reason", "origin", "failed_since", "failed_until", "most_attempts")


def letter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a `LetterFilter` as `letter_filter`: None if no option of it is used."""

    @wraps(command)
    def with_filter(**values: Any) -> Any:
        reason, topic, since, until, most = (values.pop(name) for name in _OPTIONS)
        chosen = LetterFilter(reason or "", topic or "", since, until, most)
        used = None if chosen == LetterFilter() else chosen
        return command(letter_filter=used, **values)

    decorated: Callable[..., Any] = with_filter
    for each in reversed(_decorators()):
        decorated = each(decorated)
    return decorated


def _decorators() -> list[Decorator]:
    return [
        click.option(
            "--reason", metavar="TEXT", help="Only dead letters whose reason contains this."
        ),
        click.option(
            "--origin", type=TOPIC, metavar="TOPIC", help="Only those published in this topic."
        ),
        click.option("--failed-since", type=TIME, metavar="TIME", help="Only those failed since."),
        click.option("--failed-until", type=TIME, metavar="TIME", help="Only those failed before."),
        click.option(
            "--max-attempts",
            "most_attempts",
            type=click.IntRange(1),
            metavar="N",
            help="Only those that had at most N attempts in all.",
        ),
    ]


def count_letters(chunks: Iterable[Chunk], chosen: LetterFilter) -> LetterCounts:
    counts = LetterCounts()
    for chunk in chunks:
        for message, _ in chunk.messages:
            letter = letter_of(message)
            if letter is None:
                counts.strange += 1
            elif chosen.chooses(letter):
                counts.add(letter)
            else:
                counts.others += 1
    return counts


def print_preview(counts: LetterCounts, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "chosen": counts.chosen,
                "others": counts.others,
                "no_dead_letters": counts.strange,
                "reasons": dict(counts.reasons.most_common(_MOST_REASONS)),
                "topics": dict(counts.topics.most_common()),
            }
        )
        return
    write_line(
        f"{counts.chosen} dead letters would be copied, {counts.others} not; "
        f"{counts.strange} messages are no dead letters"
    )
    for reason, count in counts.reasons.most_common(_MOST_REASONS):
        write_line(f"{count:>8}  {printable(reason)}")
    for letter in counts.samples[:_SAMPLES]:
        write_line(_sample(letter))


def _sample(letter: Letter) -> str:
    payload = "no value" if letter.payload is None else repr(letter.payload[:60])
    place = f"{letter.origin}, offset {letter.offset}, attempts {letter.attempts}"
    return f"such as {place}: {payload}"
