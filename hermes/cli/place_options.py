"""Options for places in a partition, as `hermes.client.places` parses them."""

from typing import Final

import click

from hermes.cli.options import Decorator, option_type
from hermes.client.places import (
    BEGINNING,
    END,
    PartitionPlace,
    parse_reset_position,
    parse_start,
    parse_time_ms,
)
from hermes.protocol import EARLIEST, LATEST

__all__ = ["BEGINNING", "END", "RESET_POSITION", "START", "TIME", "PartitionPlace", "start_option"]


def _parse_time(text: str) -> int:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text)
    return parse_time_ms(text.removeprefix("@")) if named is None else named


START: Final = option_type(parse_start, "start")
TIME: Final = option_type(_parse_time, "time")
RESET_POSITION: Final = option_type(parse_reset_position, "where")


def start_option(help_text: str) -> Decorator:
    """Where to begin in each partition; the command gets a `PartitionPlace` as `start`."""
    return click.option(
        "-o",
        "--offset",
        "start",
        type=START,
        default="beginning",
        show_default=True,
        metavar="START",
        help=help_text,
    )
