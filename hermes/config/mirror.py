"""The settings of a mirror, in one table, and how mirror.yaml is read into them.

broker.yaml takes the same keys under `mirror:`. Topics are checked where their names are known: in
`hermes.mirror`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from hermes.config import kinds
from hermes.config.addresses import parse_brokers
from hermes.config.connect_as import CONNECT_AS, ConnectAs
from hermes.config.exposure import check_listeners
from hermes.config.kinds import Kind
from hermes.config.listeners import LISTENERS, ListenerConfig
from hermes.config.setting import (
    Setting,
    check_required,
    named_source,
    nearest_setting,
    parse_settings,
    table_of,
)
from hermes.config.yaml_text import read_yaml_file
from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.security import PLAIN, ClientSecurity

_MAX_FILE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PLACES: Final = ("zookeeper", "brokers", "kafka")
_RANGE: Final = re.compile(r"(-?[0-9]{1,9})?:(-?[0-9]{1,9})?")


@dataclass(frozen=True)
class OwnBroker:
    """The broker that runs a mirror and belongs to its target.

    Attributes:
        broker_id: however it is registered, it is reached at `address`.
        security: the mirror's credentials there.
        zookeeper: the broker's coordination, `HOST:PORT/CHROOT`; empty without.
        has_own_coordination: whether `security` also fits coordination; else the credentials for
            the target's other brokers do.
    """

    broker_id: int
    address: tuple[str, int]
    security: ClientSecurity
    zookeeper: str = ""
    has_own_coordination: bool = False


@dataclass(frozen=True)
class MirrorClusterAddress:
    """Where a cluster is: `zookeeper`, `brokers` or `kafka` is given; or the first and the last.

    Attributes:
        zookeeper: `HOST:PORT,HOST:PORT/CHROOT`; empty without.
        brokers: host and port of some; empty without.
        kafka: the same of brokers that are to be reached by Kafka's protocol.
        connect_as: the mirror's credentials; None for none, without TLS.
        security: the same with the password, once `MirrorConfig.with_passwords` has read it.
        own: the broker beside which the mirror runs, where that is in this cluster and clients
            need credentials.
    """

    name: str
    zookeeper: str = ""
    brokers: tuple[tuple[str, int], ...] = ()
    kafka: tuple[tuple[str, int], ...] = ()
    connect_as: ConnectAs | None = None
    security: ClientSecurity = PLAIN
    own: OwnBroker | None = None

    def relative_to(self, base: Path) -> "MirrorClusterAddress":
        return replace(self, connect_as=self.connect_as and self.connect_as.relative_to(base))

    def with_password(self) -> "MirrorClusterAddress":
        """Read the password's file. Raises ConfigError."""
        if self.connect_as is None:
            return self
        try:
            return replace(self, security=self.connect_as.security().check())
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error.key}", error.message) from None

    def __str__(self) -> str:
        addresses = self.brokers or self.kafka
        places = ",".join(f"{host}:{port}" for host, port in addresses) or self.zookeeper
        return f"{self.name} ({places})"


@dataclass(frozen=True)
class TopicNames:
    """What the sources' topics are called in the target: by `map`, or else with `prefix`."""

    prefix: str = ""
    map: Mapping[str, str] = field(default_factory=dict)

    def target_of(self, topic: str) -> str:
        return self.map.get(topic, self.prefix + topic)


@dataclass(frozen=True)
class Partitioning:
    """Which partition of the target a message goes to.

    Attributes:
        rule: `index`, `random` or `key`.
        key: with rule `key`, where the key is: `json` or `bytes`.
        where: names of nested fields, outermost first, for `json`; for `bytes`, begin and end of a
            slice as in Python.
    """

    rule: str = "index"
    key: str = ""
    where: tuple[Any, ...] = ()


def _parse_name(value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value) and value not in (".", ".."):
        return value
    raise ValueError(f"expected up to 100 letters, digits, '.', '_' and '-', got {quoted(value)}")


def _parse_cluster(value: object, name: str | None = None) -> MirrorClusterAddress:
    known = (*(() if name else ("name",)), *_PLACES, "connect_as")
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of {', '.join(known)}, got {quoted(value)}")
    for key in value:
        if key not in known:
            raise ValueError(f"unknown key {quoted(key)}: expected {', '.join(known)}")
    given = [each for each in _PLACES if each in value]
    if len(given) != 1 and (name is not None or given != ["zookeeper", "kafka"]):
        raise ValueError(
            "expected one of zookeeper (HOST:PORT/CHROOT), brokers (HOST:PORT) and kafka "
            "(HOST:PORT, by Kafka's protocol)"
        )
    if name is None:
        if "name" not in value:
            raise ValueError("a source needs a name")
        name = _parse_name(value["name"])
    connect_as = None
    if "connect_as" in value:
        try:
            connect_as = CONNECT_AS.parse(value["connect_as"])
        except ValueError as error:
            raise ValueError(f"connect_as: {error}") from None
    return MirrorClusterAddress(
        name,
        zookeeper=kinds.ENSEMBLE.parse(value["zookeeper"]) if "zookeeper" in value else "",
        brokers=parse_brokers(value["brokers"]) if "brokers" in value else (),
        kafka=parse_brokers(value["kafka"]) if "kafka" in value else (),
        connect_as=connect_as,
    )


def _parse_sources(value: object) -> tuple[MirrorClusterAddress, ...]:
    if not isinstance(value, list) or not value:
        # Not shown: who writes it wrongly may have written a password into it.
        raise ValueError("expected a list of sources, each with a name")
    sources = tuple(map(_parse_cluster, value))
    names = [each.name for each in sources]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two sources are called {name}")
    return sources


def _parse_target(value: object) -> MirrorClusterAddress:
    return _parse_cluster(value, "target")


def _parse_audit_to(value: object) -> MirrorClusterAddress:
    found = _parse_cluster(value, "audit_to")
    if found.kafka:
        raise ValueError("it is a Hermes: give it by zookeeper or brokers")
    return found


def _parse_topics(value: object) -> TopicNames:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of prefix and map, got {quoted(value)}")
    for key in value:
        if key not in ("prefix", "map"):
            raise ValueError(f"unknown key {quoted(key)}: expected prefix or map")
    prefix, names = value.get("prefix", ""), value.get("map", {})
    if not isinstance(prefix, str):
        raise ValueError(f"expected a prefix such as 'east.', got {quoted(prefix)}")
    if not isinstance(names, Mapping) or not all(
        isinstance(each, str) and each for pair in names.items() for each in pair
    ):
        raise ValueError(f"expected map to have names of topics by name, got {quoted(names)}")
    return TopicNames(prefix, dict(names))


def _parse_partitioning(value: object) -> Partitioning:
    if value in ("index", "random"):
        return Partitioning(str(value))
    expected = "expected index, random, {key: {json: FIELD}} or {key: {bytes: 'BEGIN:END'}}"
    rule = value.get("key") if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(rule, Mapping) or len(rule) != 1:
        raise ValueError(f"{expected}, got {quoted(value)}")
    kind, where = next(iter(rule.items()))
    if kind == "json" and isinstance(where, str) and all(where.split(".")):
        return Partitioning("key", "json", tuple(where.split(".")))
    match = _RANGE.fullmatch(where) if kind == "bytes" and isinstance(where, str) else None
    if match is None:
        raise ValueError(f"{expected}, got {quoted(value)}")
    return Partitioning("key", "bytes", tuple(int(n) if n else None for n in match.groups()))


NAME: Final = Kind("name", _parse_name)
_PLACE: Final = "`zookeeper`, `brokers` or `kafka`, and `connect_as`"
SOURCES: Final = Kind(f"list of `name`, {_PLACE}", _parse_sources)
TARGET: Final = Kind(_PLACE, _parse_target)
AUDIT_TO: Final = Kind("`zookeeper` or `brokers`, and `connect_as`", _parse_audit_to)
TOPIC_NAMES: Final = Kind("mapping of `prefix` and `map`", _parse_topics, lambda _: "their own")
PARTITIONING: Final = Kind(
    "`index`, `random` or `key`", _parse_partitioning, lambda value: str(value.rule)
)


@dataclass(frozen=True, kw_only=True)
class MirrorConfig:
    """A value for every setting of a mirror. docs/configuration.md lists them."""

    name: Annotated[
        str,
        Setting(
            NAME,
            "The mirror's name. Processes of one name share the work as the group "
            "`hermes-mirror-NAME` in each source.",
        ),
    ]
    sources: Annotated[
        tuple[MirrorClusterAddress, ...],
        Setting(
            SOURCES,
            "The clusters to read, of Hermes or Kafka 0.7: `{name: east, zookeeper: HOST:PORT}` "
            "or `{name: east, brokers: [HOST:PORT]}`; of Hermes or Kafka 4, for topics of Kafka's "
            "format, `{name: east, kafka: [HOST:PORT]}`, with `zookeeper` beside it for `groups` "
            "of Hermes' clients. `connect_as` says who the mirror is there, as a broker's: "
            "`{user: NAME, password_file: FILE, tls_ca: FILE}`.",
        ),
    ]
    target: Annotated[
        MirrorClusterAddress,
        Setting(
            TARGET,
            "The cluster to write to, likewise without `name`. In broker.yaml it may be left out: "
            "this one.",
        ),
    ]
    whitelist: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.TEXT, "all"),
            "The topics to mirror: names with commas between, or a regular expression of Java's. "
            "Not together with `blacklist`.",
        ),
    ] = None
    blacklist: Annotated[
        str | None,
        Setting(kinds.optional(kinds.TEXT, "none"), "The topics not to mirror, written likewise."),
    ] = None
    topics: Annotated[
        TopicNames,
        Setting(
            TOPIC_NAMES,
            "The names in the target: `{prefix: east., map: {clicks: all-clicks}}`. What is mapped "
            "gets no prefix.",
        ),
    ] = field(default_factory=TopicNames)
    partitioning: Annotated[
        Partitioning,
        Setting(
            PARTITIONING,
            "`index`: the n-th partition of a topic goes to the n-th of the target, modulo their "
            "number. `random`: a MiB here, a MiB there. `{key: {json: user.id}}` or `{key: {bytes: "
            "'0:8'}}`: by the hash of a key in the message, as Java's producers have it.",
        ),
    ] = field(default_factory=Partitioning)
    in_step: Annotated[
        tuple[str, ...] | None,
        Setting(
            kinds.optional(kinds.choices("partitions", "settings"), "none"),
            "What topics of Kafka's format have as the source's do, now and later: as many "
            "`partitions`, and their `settings`.",
        ),
    ] = None
    groups: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.TEXT, "none"),
            "The groups, of Kafka's and of Hermes' clients, whose offsets are carried over to a "
            "Hermes as the target, written as `whitelist`.",
        ),
    ] = None
    damaged: Annotated[
        str,
        Setting(
            kinds.choice("skip", "stop"),
            "What to do at a damaged message: skip and count it, or stop reading its partition.",
        ),
    ] = "skip"
    throttle_bytes: Annotated[
        int | None,
        Setting(
            kinds.unlimited_or(kinds.size(1024)),
            "How much a process reads in a second at most.",
            key="throttle",
        ),
    ] = None
    start: Annotated[
        str,
        Setting(
            kinds.choice("smallest", "largest"),
            "Where to begin in a partition that has never been mirrored.",
        ),
    ] = "smallest"
    buffer_bytes: Annotated[
        int,
        Setting(
            kinds.size(1 << 20),
            "How much a process holds in memory: read from a source, not yet acknowledged by the "
            "target.",
            key="buffer",
        ),
    ] = 32 << 20
    audit: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether the mirror counts what it copies for the audit (`hermes audit`), in the "
            "target's topic hermes-audit. Offsets are then committed only for what was counted.",
        ),
    ] = False
    audit_to: Annotated[
        MirrorClusterAddress | None,
        Setting(
            kinds.optional(AUDIT_TO, "the target"),
            "The Hermes that the counts go to instead, written as `target`: needed where the "
            "target is given by its `kafka`.",
        ),
    ] = None
    audit_window_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "How long the audit's windows are: as the producers have it.",
            key="audit_window",
        ),
    ] = 60_000
    http_listen: Annotated[
        tuple[ListenerConfig, ...] | None,
        Setting(
            kinds.optional(LISTENERS, "none"),
            "Where the process serves metrics, health and its state over HTTP: endpoint strings, "
            "or [listeners](configuration.md#listeners) with TLS and authentication.",
        ),
    ] = None
    allow_insecure: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether `http_listen` may be reached by other machines without TLS and "
            "authentication. In broker.yaml it is the broker's unless given.",
        ),
    ] = False
    users_file: Annotated[
        Path | None,
        Setting(
            kinds.optional(kinds.PATH, "none"),
            "The file with the users of `http_listen`, as `hermes users` writes it. In "
            "broker.yaml it is the broker's unless given.",
        ),
    ] = None

    def with_passwords(self) -> "MirrorConfig":
        """Read all passwords. Blocks. A ConfigError names the cluster and the setting."""
        sources = tuple(each.with_password() for each in self.sources)
        audit_to = self.audit_to and self.audit_to.with_password()
        return replace(self, sources=sources, target=self.target.with_password(), audit_to=audit_to)


MIRROR_SETTINGS: Final[Mapping[str, Setting]] = table_of(MirrorConfig)


def load_mirror_config(path: str | Path) -> MirrorConfig:
    """Read and check a mirror.yaml.

    Returns:
        A value for every setting; relative paths are resolved from the file's own directory.

    Raises:
        ConfigError: the file can't be read or isn't YAML, or a setting is unknown, wrong or
            missing; one line that names the file, the key and what was expected.
    """
    source = str(path)
    config = parse_mirror_config(read_yaml_file(path, _MAX_FILE_BYTES), source)
    base = Path(path).absolute().parent
    config = replace(
        config,
        http_listen=config.http_listen
        and tuple(each.relative_to(base) for each in config.http_listen),
        sources=tuple(each.relative_to(base) for each in config.sources),
        target=config.target.relative_to(base),
        audit_to=config.audit_to and config.audit_to.relative_to(base),
        users_file=config.users_file and base / config.users_file,
    )
    with named_source(source):
        return config.with_passwords()


def _hint(key: str, value: object) -> str:
    nearest = nearest_setting(key, value, MIRROR_SETTINGS)
    return nearest or " (docs/mirror.md lists them all)"


def parse_mirror_config(
    values: object, source: str = "", *, default_target: Mapping[str, Any] | None = None
) -> MirrorConfig:
    """Check settings that have been read already.

    Args:
        source: the file's name for messages; empty when there is none.
        default_target: the default of `target`; None if it must be given. With it, these are
            settings in broker.yaml, whose own say which listeners may be opened.

    Raises:
        ConfigError: a setting is unknown, wrong or missing.
    """
    if not isinstance(values, Mapping):
        found = "nothing" if values is None else quoted(values)
        raise ConfigError("", f"expected a mapping of settings, got {found}", source=source)
    given = dict(values)
    if default_target is not None:
        given.setdefault("target", default_target)
    with named_source(source):
        parsed = parse_settings(given, MIRROR_SETTINGS, _hint)
        check_required(parsed, MIRROR_SETTINGS)
    if parsed.get("whitelist") and parsed.get("blacklist"):
        raise ConfigError("blacklist", "give it or whitelist, not both", source=source)
    config = MirrorConfig(**parsed)
    if config.audit and config.target.kafka and config.audit_to is None:
        text = "its counts go to a Hermes: give one by audit_to"
        raise ConfigError("audit", text, source=source)
    if config.audit_to is not None and not config.audit:
        raise ConfigError("audit_to", "it has no effect without audit: true", source=source)
    for each in config.sources:
        if each.kafka and each.zookeeper and not config.groups:
            text = f"{each.name}: zookeeper beside kafka is where `groups` of Hermes' clients are"
            raise ConfigError("sources", f"{text}: give groups, too", source=source)
    if config.groups and config.target.kafka:
        text = "only a Hermes translates offsets: give the target by its zookeeper or brokers"
        raise ConfigError("groups", text, source=source)
    if default_target is None:  # else the broker's settings decide about it
        check_listeners(
            "http_listen",
            config.http_listen or (),
            allow_insecure=config.allow_insecure,
            knows_users=config.users_file is not None,
        )
    return config
