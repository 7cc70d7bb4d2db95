"""The options of `format("hermes")`: names, defaults, and errors that name what to change.

Names are those of Spark's connector for Kafka wherever the meaning is the same. An unknown option
is an error, so that a typo doesn't read something else; names from Kafka's connector that don't
apply here have an explanation of their own.

Spark passes options without regard to case; the table has them as the documentation writes them.
It is most of this module, and reads best in one piece, next to the parsers that it names.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from hermes.config.addresses import parse_brokers
from hermes.config.units import parse_duration, parse_size
from hermes.errors import ConfigError
from hermes.regex import JavaPattern, compile_java
from hermes.spark.identity import NOBODY, ClientIdentity
from hermes.spark.offsets import Offsets, TopicPartition, parse_offsets, parse_partitions

Use: TypeAlias = Literal["batch", "stream", "load", "sink"]

StartingPoint: TypeAlias = Literal["earliest", "latest"] | Offsets
"""Where a read starts or ends: an end of every partition, or an offset for each."""


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    default: Any
    doc: str
    uses: tuple[Use, ...] = ("batch", "stream", "load", "sink")  # as far as its table is for them


class RetryOptions(NamedTuple):
    """How often, and after how many seconds, what failed is tried again."""

    times: int
    seconds: float


class ConnectionOptions(NamedTuple):
    """How the brokers are found: all of them are listed, or the ZooKeeper with its chroot."""

    bootstrap: tuple[tuple[str, int], ...] = ()
    zookeeper: str = ""
    identity: ClientIdentity = NOBODY


class Selection(NamedTuple):
    """Which partitions are read: exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: JavaPattern | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def includes(self, partition: TopicPartition) -> bool:
        if self.pattern is not None:
            return self.pattern.matches(partition.topic)
        return partition.topic in self.topics or partition in self.partitions


def parse_flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text!r}")
    return text.lower() == "true"


def whole_number(least: int) -> Callable[[str], int]:
    """Make a parser of whole numbers not below `least`; it raises ValueError."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) or int(text) < least:
            raise ValueError(f"expected a whole number >= {least}, got {text!r}")
        return int(text)

    return parse


def byte_count(text: str) -> int:
    size = parse_size(int(text) if text.isdecimal() else text)
    if size < 1:
        raise ValueError(f"expected more than 0 bytes, got {text!r}")
    return size


def milliseconds(text: str) -> int:
    return parse_duration(text.strip())


def _times(text: str) -> Offsets:
    times = parse_offsets(text)
    if times and min(times.values()) < 0:
        raise ValueError("expected times in ms since 1970")
    return times


def _zookeeper(text: str) -> str:
    if not text.strip():
        raise ValueError("expected HOST:PORT,HOST:PORT/CHROOT, got nothing")
    return text.strip()


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("expected the path of a file")
    return text


def some(what: str) -> Callable[[str], str]:
    """Make a parser of texts that aren't empty; it raises ValueError."""

    def parse(text: str) -> str:
        if not text:
            raise ValueError(f"expected {what}, got nothing")
        return text

    return parse


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not topics:
        raise ValueError(f"expected names of topics, separated by commas, got {text!r}")
    return topics


def _pattern(text: str) -> JavaPattern:
    try:
        return compile_java(text)
    except ValueError as error:
        raise ValueError(f"{text!r} can't be used as a regular expression: {error}") from error


def _point(*words: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text.strip().lower() in words:
            return text.strip().lower()
        if not text.strip().startswith("{"):
            raise ValueError(f"expected {' or '.join(words)}, or JSON with offsets, got {text!r}")
        return parse_offsets(text)

    return parse


ADDRESS_OPTIONS: Final = (
    Option(
        "hermes.bootstrap.servers",
        parse_brokers,
        None,
        "`HOST:PORT` of every broker, separated by commas: a broker knows only its own partitions",
    ),
    Option(
        "hermes.zookeeper",
        _zookeeper,
        None,
        "`HOST:PORT,HOST:PORT/CHROOT` of the ZooKeeper where the brokers register, instead of the "
        "list; brokers and partitions that are added later are found",
    ),
)

#: Who connects; in the order of the attributes of `ClientIdentity`.
IDENTITY_OPTIONS: Final = (
    Option(
        "tls",
        parse_flag,
        None,
        "whether to connect by TLS; unless given, if one of the next three is",
    ),
    Option(
        "tlsCa",
        _path,
        None,
        "a file with the certificates (PEM) of those who may have signed the brokers'; the "
        "system's unless given. This file and the next are on the driver and on every worker",
    ),
    Option("tlsCertificate", _path, None, "a file with a certificate (PEM) that says who asks"),
    Option("tlsKey", _path, None, "a file with its key (PEM), unless it is in the same one"),
    Option("user", some("a user's name"), None, "the name of the user who asks"),
    Option(
        "passwordFile",
        _path,
        None,
        "a file with the user's password, one line; without it `HERMES_PASSWORD_FILE` or "
        "`HERMES_PASSWORD` in the environment of the driver and the executors",
    ),
    Option(
        "password",
        str,
        None,
        "the password itself, as a program has it from a secret store; not for tables, whose "
        "options are stored",
    ),
    Option(
        "zookeeperTls",
        parse_flag,
        True,
        "whether ZooKeeper is connected to as brokers are; else without TLS, and as nobody",
    ),
)

#: What says to whom, and as whom, a query connects.
CONNECTION_OPTIONS: Final = (*ADDRESS_OPTIONS, *IDENTITY_OPTIONS)

SOURCE_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    Option("subscribe", _topics, None, "names of topics, separated by commas"),
    Option("subscribePattern", _pattern, None, "a Java regular expression for names of topics"),
    Option("assign", parse_partitions, None, 'partitions: `{"topic": ["<broker>-<partition>"]}`'),
    Option(
        "kafka.bootstrap.servers",
        some("HOST:PORT,..."),
        None,
        "beside hermes.bootstrap.servers or hermes.zookeeper, where the brokers' `kafka_listen` "
        "is: topics of Kafka's format are then read by Spark's connector for Kafka, which takes "
        "less time, if its jar is there",
        ("load",),
    ),
    Option(
        "startingOffsets",
        _point("earliest", "latest"),
        None,
        'where to start: `earliest`, `latest` or `{"topic": {"<broker>-<partition>": offset}}`, in '
        "which -2 is the earliest and -1 the latest; by default `earliest` for a batch and "
        "`latest` for a stream. A stream that has a checkpoint resumes from there, and reads "
        "partitions that are added later from their beginning",
    ),
    Option(
        "startingTimestamp",
        whole_number(0),
        None,
        "instead of `startingOffsets`: start with what was appended at this time, in ms since "
        "1970, or later (exact where the broker's time index reaches)",
    ),
    Option(
        "startingOffsetsByTimestamp",
        _times,
        None,
        'the same with a time for each partition: `{"topic": {"<broker>-<partition>": ms}}`',
    ),
    Option(
        "endingOffsets",
        _point("latest"),
        "latest",
        "where a batch ends: `latest`, or offsets as for the start",
        ("batch",),
    ),
    Option(
        "endingTimestamp",
        whole_number(0),
        None,
        "instead of `endingOffsets`: end before what was appended at this time or later",
        ("batch",),
    ),
    Option(
        "endingOffsetsByTimestamp",
        _times,
        None,
        "the same with a time for each partition, as for the start",
        ("batch",),
    ),
    Option(
        "maxBytesPerTrigger",
        byte_count,
        None,
        "how many bytes of the logs a micro-batch takes at most, shared out by what each partition "
        "has; a batch takes at least one message of a partition that it reads",
        ("stream",),
    ),
    Option(
        "maxOffsetsPerTrigger",
        whole_number(1),
        None,
        "how many messages a micro-batch takes at most, of topics of Kafka's format, in which "
        "offsets count these; shared out in the same way",
        ("stream",),
    ),
    Option(
        "minOffsetsPerTrigger",
        whole_number(1),
        None,
        "how many messages of such topics a micro-batch waits for; with `availableNow` it doesn't",
        ("stream",),
    ),
    Option(
        "maxTriggerDelay",
        milliseconds,
        15 * 60_000,
        "how long it waits at most, since the last one",
        ("stream",),
    ),
    Option(
        "minPartitions",
        whole_number(1),
        None,
        "at least so many tasks: partitions are split, at the boundaries of messages",
    ),
    Option(
        "maxPartitions",
        whole_number(1),
        None,
        "at most so many tasks. Without it small partitions share a task, too, up to 4 MiB",
    ),
    Option(
        "pushFilters",
        parse_flag,
        False,
        "let a query's filters on `topic`, `broker`, `partition`, `offset` and `timestamp` narrow "
        "what is fetched, in sessions with `spark.sql.python.filterPushdown.enabled`. Only for a "
        "DataFrame that is used in one query, and once in it: up to 4.3.0 Spark reads for others "
        "what it has planned for that one",
        ("batch",),
    ),
    Option(
        "failOnDataLoss",
        parse_flag,
        True,
        "whether offsets that are gone and damaged messages are an error; if not, they are "
        "skipped and logged",
    ),
    Option(
        "groupId",
        str.strip,
        None,
        "publish a stream's progress as this consumer group's offsets, for `hermes groups`; "
        "needs `hermes.zookeeper`. The stream itself goes by its checkpoint alone",
        ("stream",),
    ),
    Option(
        "includeTimestamp",
        parse_flag,
        False,
        "add the column `timestamp`: when the broker appended, null where it does not know; of "
        "topics of Kafka's format the record's own time",
    ),
    Option(
        "includeKey",
        parse_flag,
        False,
        "add the column `key`: of topics of Kafka's format, null in others",
    ),
    Option(
        "includeHeaders",
        parse_flag,
        False,
        "add the column `headers`: of topics of Kafka's format, null in others, as Spark's source "
        "for Kafka has it",
    ),
    Option(
        "fetchOffset.numRetries",
        whole_number(0),
        3,
        "how often a broker that fails is asked again, in planning and in tasks, before Spark "
        "sees an error",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        whole_number(0),
        1000,
        "how long to wait before each of these retries, in ms",
    ),
    Option(
        "maxFetchBytes",
        byte_count,
        64 * 1024 * 1024,
        "the largest message, or compressed set of messages, that can be read; a set also when it "
        "is expanded",
    ),
)

#: What users of other connectors will try, and what to tell them. Keys in lower case.
CONNECTION_HINTS: Final = {
    "kafka.bootstrap.servers": "here it is hermes.bootstrap.servers",
    "bootstrap.servers": "here it is hermes.bootstrap.servers",
    "kafka.security.protocol": "use tls, tlsCa and user",
    "kafka.sasl.jaas.config": "use user and passwordFile",
    "kafka.ssl.truststore.location": "use tlsCa: a file with certificates in PEM",
    "kafka.ssl.keystore.location": "use tlsCertificate and tlsKey: files in PEM",
    "includeheaders": "messages of this format have no headers",
}

_HINTS: Final = {
    **CONNECTION_HINTS,
    "kafka.group.id": "groups only publish progress here: use groupId",
    "groupidprefix": "groups only publish progress here: use groupId",
    "path": "topics are named by subscribe, subscribePattern or assign, not by a path",
    "topic": "a read names its topics by subscribe, subscribePattern or assign",
}


def parse_options(
    given: Mapping[str, str],
    table: tuple[Option, ...],
    use: Use | None,
    hints: Mapping[str, str] = _HINTS,
) -> dict[str, Any]:
    """Read the options that Spark hands over, in any case: a value for each of the table.

    Without a `use` only what doesn't depend on it is checked. `hints` say what to do about unknown
    ones, by their name in lower case. Raises ConfigError: an option is unknown, wrong, or not for
    this use.
    """
    known = {option.name.lower(): option for option in table}
    values = {option.name: option.default for option in table}
    for name, text in given.items():
        option = known.get(name.lower())
        if option is None:
            raise ConfigError(name, hints.get(name.lower()) or _unknown(table, use))
        if use is not None and use not in option.uses:
            raise ConfigError(option.name, f"has no meaning for a {use}: {option.doc}")
        try:
            values[option.name] = option.parse(text)
        except ValueError as error:
            raise ConfigError(option.name, str(error)) from error
    return values


def address_of(values: Mapping[str, Any]) -> ConnectionOptions:
    """Take the brokers' address, and who connects, from parsed options. Raises ConfigError."""
    bootstrap, zookeeper = (values[option.name] for option in ADDRESS_OPTIONS)
    if bool(bootstrap) == bool(zookeeper):
        raise ConfigError(
            "hermes.bootstrap.servers", "expected exactly one: this or hermes.zookeeper"
        )
    identity = ClientIdentity(*(values[option.name] for option in IDENTITY_OPTIONS))
    return ConnectionOptions(bootstrap or (), zookeeper or "", identity)


class ExtraColumns(NamedTuple):
    """Which columns follow those that every read has, in this order."""

    timestamp: bool = False
    key: bool = False
    headers: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, wanted in zip(self._fields, self, strict=True) if wanted)


class OffsetLimits(NamedTuple):
    """How many messages a micro-batch takes, where offsets count these; None: as many as come.

    `delay_seconds`: how long it waits at most for the fewest.
    """

    most: int | None = None
    fewest: int | None = None
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    address: ConnectionOptions
    selection: Selection
    starting: StartingPoint
    starting_ms: int | Offsets | None
    ending: StartingPoint
    ending_ms: int | Offsets | None
    max_bytes: int | None
    limits: OffsetLimits
    min_partitions: int | None
    max_partitions: int | None
    push_filters: bool
    fail_on_data_loss: bool
    group: str | None
    extras: ExtraColumns
    retries: RetryOptions
    max_fetch_bytes: int
    kafka: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], use: Use | None) -> "SourceOptions":
        """Read what Spark hands over. Raises ConfigError."""
        values = parse_options(given, SOURCE_OPTIONS, use)
        for which in ("starting", "ending"):
            offsets, times = f"{which}Offsets", f"{which}OffsetsByTimestamp"
            _exclude(values, given, f"{which}Timestamp", offsets)
            _exclude(values, given, times, offsets)
            _exclude(values, given, times, f"{which}Timestamp")
        _exclude(values, given, "maxOffsetsPerTrigger", "maxBytesPerTrigger")
        first, last = values["startingTimestamp"], values["endingTimestamp"]
        if first is not None and last is not None and first > last:
            raise ConfigError("endingTimestamp", f"it is before startingTimestamp, {first}")
        starting: StartingPoint = values["startingOffsets"] or (
            "latest" if use == "stream" else "earliest"
        )
        if use == "batch" and starting == "latest":
            raise ConfigError("startingOffsets", "a batch that starts at the latest reads nothing")
        least, most = values["minPartitions"], values["maxPartitions"]
        if least is not None and most is not None and least > most:
            raise ConfigError("maxPartitions", f"it is less than minPartitions, {least}")
        limits = OffsetLimits(
            values["maxOffsetsPerTrigger"],
            values["minOffsetsPerTrigger"],
            values["maxTriggerDelay"] / 1000,
        )
        if (limits.fewest or 0) > (limits.most or limits.fewest or 0):
            raise ConfigError("minOffsetsPerTrigger", "it is more than maxOffsetsPerTrigger")
        address = address_of(values)
        if values["groupId"] is not None and not address.zookeeper:
            raise ConfigError(
                "groupId", "progress is published in ZooKeeper: give hermes.zookeeper"
            )
        return cls(
            address,
            _selection(values),
            starting,
            _either(first, values["startingOffsetsByTimestamp"]),
            values["endingOffsets"],
            _either(last, values["endingOffsetsByTimestamp"]),
            values["maxBytesPerTrigger"],
            limits,
            values["minPartitions"],
            values["maxPartitions"],
            values["pushFilters"],
            values["failOnDataLoss"],
            values["groupId"],
            ExtraColumns(
                values["includeTimestamp"], values["includeKey"], values["includeHeaders"]
            ),
            RetryOptions(
                values["fetchOffset.numRetries"], values["fetchOffset.retryIntervalMs"] / 1000
            ),
            values["maxFetchBytes"],
            values["kafka.bootstrap.servers"],
        )


def _either(time_ms: int | None, times: Offsets | None) -> int | Offsets | None:
    return times if time_ms is None else time_ms


def _selection(values: Mapping[str, Any]) -> Selection:
    names = ("subscribe", "subscribePattern", "assign")
    if sum(values[name] is not None for name in names) != 1:
        raise ConfigError("subscribe", "expected exactly one: this, subscribePattern or assign")
    topics, pattern, partitions = (values[name] for name in names)
    return Selection(topics or (), pattern, partitions or ())


def _exclude(values: Mapping[str, Any], given: Mapping[str, str], one: str, other: str) -> None:
    if values[one] is not None and other.lower() in {name.lower() for name in given}:
        raise ConfigError(one, f"expected at most one: this or {other}")


def _unknown(table: tuple[Option, ...], use: Use | None) -> str:
    names = [option.name for option in table if use is None or use in option.uses]
    return f"there is no such option; there are {', '.join(names)}"
