"""What mirror processes publish about themselves in the cluster that they write to.

    /mirrors/<name>/<process>    ephemeral    JSON: a `MirrorProcess`

The command and the console read it. A process rewrites its node every few seconds; one that ends
takes it along. Reading is liberal: what a later version adds is ignored, and a node that can't be
understood costs what it is about.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import NoneType
from typing import Any, Final, Self

from hermes.coordination.layout import MIRRORS
from hermes.coordination.nodes import TreeSession
from hermes.errors import InvalidNodeError
from hermes.quoting import printable, quoted

#: How many partitions are listed one by one: those furthest behind, or in trouble.
MOST_PARTITIONS: Final = 2000
#: How large a node becomes at most; ZooKeeper takes a megabyte.
MOST_BYTES: Final = 512 * 1024
#: One that has not written for so long does not get on, or can't reach the target's coordination.
SILENT_SECONDS: Final = 30
#: Of an error's text, in characters.
LONGEST_ERROR: Final = 300
_MOST_ERRORS: Final = 100


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    """A partition that a process mirrors.

    Attributes:
        source: the name of the source cluster; topic and partition are those there.
        partition: `<broker>-<partition>` there.
        position: the source offset up to which the target has acknowledged everything.
        end: up to where the source can be read; None while that isn't known.
        rate_bytes: bytes of the source per second, over the last seconds.
        error: what is wrong; empty when nothing is.
    """

    source: str
    topic: str
    partition: str
    target_topic: str
    position: int
    end: int | None = None
    rate_bytes: float = 0.0
    error: str = ""

    @property
    def lag_bytes(self) -> int | None:
        """How many bytes are yet to be mirrored; None while that isn't known."""
        return None if self.end is None else max(self.end - self.position, 0)


@dataclass(frozen=True, slots=True)
class MirrorProcess:
    """A process of a mirror, at one moment. Counts begin at its start.

    Attributes:
        process: distinguishes the mirror's processes.
        started_ms, time_ms: when it started and when it wrote this, in ms since 1970.
        sources: of each source cluster its id, by its name.
        http: where it serves metrics; empty for nowhere.
        messages: how many the target has acknowledged; those inside compressed sets don't count.
        mirrored_bytes: the same in bytes of the source.
        rate_bytes: of these per second, over the last seconds.
        lag_bytes: yet to be mirrored, as far as known.
        duplicates: messages that were there already after a restart, and not sent again.
        damaged: damaged messages that were skipped.
        lost_bytes: what sources deleted by retention before it was read.
        partitions: those, or `MOST_PARTITIONS` of them.
        errors: what is wrong now, by what it is about.
        refused: topics that would make a loop, and why: by `<source>/<topic>`.
    """

    mirror: str
    process: str
    host: str = ""
    pid: int = 0
    version: str = ""
    started_ms: int = 0
    time_ms: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    http: str = ""
    messages: int = 0
    mirrored_bytes: int = 0
    rate_bytes: float = 0.0
    lag_bytes: int = 0
    duplicates: int = 0
    damaged: int = 0
    lost_bytes: int = 0
    count: int = 0
    partitions: tuple[MirroredPartition, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{MIRRORS}/{self.mirror}/{self.process}"

    @classmethod
    def parse(cls, path: str, value: bytes) -> Self:
        """Read a node; InvalidNodeError, with the path, if it can't be understood."""
        try:
            given = json.loads(value)
            *_, mirror, process = path.split("/")
            given |= {"mirror": mirror, "process": process}
            parts = given.pop("partitions", [])
            if len(parts) > MOST_PARTITIONS:
                raise ValueError
            rows = tuple(_made(MirroredPartition, each) for each in parts)
            made: Self = _made(cls, {**given, "partitions": rows})
            return made
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidNodeError(
                f"{path}: expected what a mirror says about itself, got {quoted(value)}"
            ) from error

    def format(self) -> bytes:
        shown = asdict(self)
        del shown["mirror"], shown["process"]
        shown["errors"], shown["refused"] = _cut(self.errors), _cut(self.refused)
        rows = sorted(self.partitions, key=lambda each: (not each.error, -(each.lag_bytes or 0)))
        limit = MOST_PARTITIONS
        while True:
            shown["partitions"] = [
                asdict(each) | {"error": printable(each.error, LONGEST_ERROR)}
                for each in sorted(rows[:limit], key=_place)
            ]
            value = json.dumps(shown, separators=(",", ":")).encode()
            if len(value) <= MOST_BYTES or not limit:
                return value
            limit //= 2


def problems_of(name: str, processes: Sequence[MirrorProcess], now_ms: int) -> Iterator[str]:
    """What is wrong with a mirror, a sentence each; nothing where all is well."""
    if not processes:
        yield f"mirror {name}: no process runs"
    for each in processes:
        silent_seconds = (now_ms - each.time_ms) // 1000
        if silent_seconds > SILENT_SECONDS:
            yield f"mirror {name}: {each.process} has said nothing for {silent_seconds} s"
        for what, error in each.errors.items():
            yield f"mirror {name}: {what}: {error}"
        for what, reason in each.refused.items():
            yield f"mirror {name}: {what} is refused: {reason}"
        for row in each.partitions:
            if row.error:
                yield f"mirror {name}: {row.source} {row.topic} {row.partition}: {row.error}"


def read_mirrors(
    session: TreeSession,
) -> tuple[dict[str, list[MirrorProcess]], list[InvalidNodeError]]:
    """Read what all mirror processes have published that write to a cluster.

    Returns the processes of each mirror, both in the order of their names, a mirror without
    processes among them; and what can't be understood.
    """
    found: dict[str, list[MirrorProcess]] = {}
    faults: list[InvalidNodeError] = []
    for name in session.children(MIRRORS):
        paths = [f"{MIRRORS}/{name}/{each}" for each in session.children(f"{MIRRORS}/{name}")]
        found[name] = []
        for path in paths:
            try:
                node = session.get(path)
                if node is not None:
                    found[name].append(MirrorProcess.parse(path, node.value))
            except InvalidNodeError as fault:
                faults.append(fault)
    return found, faults


def _place(row: MirroredPartition) -> tuple[str, str, list[int]]:
    return row.source, row.topic, [int(each) for each in row.partition.split("-") if each.isdigit()]


def _cut(errors: Mapping[str, str]) -> dict[str, str]:
    shown = list(errors.items())[:_MOST_ERRORS]
    return {what: printable(error, LONGEST_ERROR) for what, error in shown}


_KINDS: Final[Mapping[Any, Any]] = {
    str: str,
    int: int,
    int | None: (int, NoneType),
    float: (int, float),
    Mapping[str, str]: dict,
}


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    return kind(**dict(_checked(kind, given)))


def _checked(kind: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for each in fields(kind):
        if each.name not in given:
            continue
        value = given[each.name]
        is_right = isinstance(value, _KINDS.get(each.type, object)) and not isinstance(value, bool)
        if isinstance(value, dict):
            is_right = is_right and all(isinstance(text, str) for text in value.values())
        if not is_right:
            raise ValueError(each.name)
        yield each.name, value
