"""How large the measurements are: one value for all of them, filled from the command line."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

__all__ = ["Settings"]

_TEMPORARY = Path(tempfile.gettempdir())
_RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line can change; the defaults make `all` a matter of minutes.

    The text beside each type is what `--help` says.
    """

    directory: Annotated[
        Path, "where temporary data goes; put it on the disk that is to be measured"
    ] = _TEMPORARY
    results: Annotated[Path, "where the figures and their data go"] = _RESULTS
    rounds: Annotated[
        int, "how often each side of a ratio is taken; fetches three times as often"
    ] = 5
    messages: Annotated[float, "produced per run, in millions"] = 1.0
    fetch_gigabytes: Annotated[float, "fetched per run"] = 0.5
    latency_seconds: Annotated[float, "how long messages are sent one by one"] = 10.0
    through_gigabytes: Annotated[float, "what goes in and out while the memory is watched"] = 5.0
    connections: Annotated[int, "how many idle connections"] = 10_000
    consumers: Annotated[int, "how many consumers wait"] = 2_000
    partitions: Annotated[int, "how many partitions the broker starts with"] = 2_000
    big_log_gigabytes: Annotated[float, "how large the large log is"] = 20.0
    copied_gigabytes: Annotated[float, "what a wiped copy has to catch up with"] = 4.0
    topics: Annotated[int, "how many topics lose a broker"] = 1_000
    figure_messages: Annotated[float, "per curve of the figures, in millions"] = 1.0
    peer_messages: Annotated[float, "the same for RabbitMQ and ActiveMQ, in millions"] = 0.1
    spark_messages: Annotated[float, "read by Spark per run, in millions"] = 5.0
    spark_gigabytes: Annotated[float, "what Spark's query reads while the memory is watched"] = 10.0

    requests: Annotated[int, "how many requests of a kind `requests` counts, beside a hundred"] = (
        400
    )
    only: Annotated[str, "the kinds that `requests` counts, with commas; all if empty"] = ""
    totals: Annotated[bool, "`requests` leaves out layers and system calls"] = False

    twistd: Annotated[
        str, "of Pythons without a global lock that Hermes is installed in, with commas"
    ] = ""

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give an empty directory that is removed with all its data when the block ends."""
        with tempfile.TemporaryDirectory(prefix="hermes-bench-", dir=self.directory) as path:
            yield Path(path)
