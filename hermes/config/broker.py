"""Every setting of a broker, in one table: the annotated fields of `BrokerConfig`.

A field's annotation, a `Setting`, says how its value is read, which keys of Kafka 0.7 it replaces,
and what it means. The loader, the reference in docs/ and the import of 0.7's properties are all
driven by it, so a new setting is one new field. Knows neither YAML nor files nor Twisted.

Durations are whole milliseconds in attributes that end in `_ms`; broker.yaml's key has no such
ending, since the value has a unit: `idle_timeout: 10m` -> `config.idle_timeout_ms`. The same goes
for `_bytes` where the key was named without it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from hermes.config import kinds
from hermes.config.access import ACCESS_RULES
from hermes.config.connect_as import CONNECT_AS, ConnectAs
from hermes.config.embedded_mirror import EMBEDDED_MIRROR, EmbeddedMirror
from hermes.config.listeners import LISTENER, LISTENERS, NONE, ListenerConfig
from hermes.config.quotas import QUOTAS, Quota
from hermes.config.requested import Requested, quota_in_force
from hermes.config.setting import Setting, table_of
from hermes.config.topic import (
    COPY_COUNT,
    DEFAULT_OF,
    MAX_BATCH_BYTES,
    MIN_INSYNC,
    OWN_TOPICS,
    SCHEMAS_TOPIC,
    TOPIC_ONLY,
    TOPIC_SETTINGS,
    TopicConfig,
    TopicSettings,
    untrimmed,
)
from hermes.security import AccessRule

_SECOND = 1000
_MINUTE = 60 * _SECOND
_DAY = 24 * 60 * _MINUTE

# The reference's headings, in its order.
_NETWORK = "Identity and network"
_SECURITY = "Security"
_LIMITS = "Limits"
_TOPICS = "Topics"
_REPLICATION = "Copies of topics"
_STORAGE = "Logs and retention"
_FLUSH = "Flushing"
_COORDINATION = "Coordination"
_GROUPS = "Groups of Kafka's consumers"
_HTTP = "HTTP"
_MIRROR = "Mirror"
_PROCESS = "The process"


# For this machine only: see `hermes.config.exposure`.
_LISTEN = ListenerConfig("tcp:9092:interface=127.0.0.1")
_COORDINATION_LISTEN = ListenerConfig("tcp:2181:interface=127.0.0.1")

#: The authorizer that reads `access`.
RULES: Final = "rules"

#: The authenticator that reads `users_file`.
USERS_FILE: Final = "users-file"


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """A value for every setting of a broker. docs/configuration.md lists them."""

    broker_id: Annotated[
        int,
        Setting(
            kinds.whole_number(0, kinds.INT32_MAX),
            "The broker's number, unique in its cluster.",
            _NETWORK,
            replaces=("brokerid",),
        ),
    ]
    listen: Annotated[
        tuple[ListenerConfig, ...],
        Setting(
            LISTENERS,
            "Where to listen: Twisted server endpoint strings, or [mappings](#listeners) with TLS "
            "and authentication. By default only this machine can connect. Port 0 picks a free "
            "port, which the log and the ready file name.",
            _NETWORK,
            replaces=("port",),
        ),
    ] = (_LISTEN,)
    kafka_listen: Annotated[
        tuple[ListenerConfig, ...] | None,
        Setting(
            kinds.optional(LISTENERS, "off"),
            "Where to serve Kafka clients, in the form of `listen`, for instance "
            "`tcp:19092:interface=127.0.0.1`: the address for their `bootstrap.servers`. Off "
            "unless set. Needs the extra `kafka`.",
            _NETWORK,
        ),
    ] = None
    kafka_to_0_7: Annotated[
        str,
        Setting(
            kinds.choice("translate", "refuse"),
            "What happens when a Kafka client produces to a topic in 0.7's format: `translate` "
            "stores the values as 0.7 messages and refuses records with a key, with headers or "
            "without a value; `refuse` refuses everything.",
            _NETWORK,
            is_live=True,
        ),
    ] = "translate"
    advertised_host: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.HOST, "own address"),
            "The host name that the broker registers. Not an IPv6 literal, since 0.7 clients "
            "split the address at colons.",
            _NETWORK,
            replaces=("hostname",),
        ),
    ] = None
    advertised_port: Annotated[
        int | None,
        Setting(
            kinds.optional(kinds.whole_number(1, 65535), "the first listening port"),
            "The port that the broker registers.",
            _NETWORK,
        ),
    ] = None
    socket_send_buffer_bytes: Annotated[
        int | None,
        Setting(
            kinds.optional(kinds.size(1, kinds.INT32_MAX), "the system's"),
            "Send buffer of a connection (SO_SNDBUF), from the next one on.",
            _NETWORK,
            replaces=("socket.send.buffer",),
            key="socket_send_buffer",
            is_live=True,
        ),
    ] = None
    socket_receive_buffer_bytes: Annotated[
        int | None,
        Setting(
            kinds.optional(kinds.size(1, kinds.INT32_MAX), "the system's"),
            "Receive buffer of a connection (SO_RCVBUF), from the next one on.",
            _NETWORK,
            replaces=("socket.receive.buffer",),
            key="socket_receive_buffer",
            is_live=True,
        ),
    ] = None

    allow_insecure: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether to allow ports that other machines can reach without TLS and authentication. "
            "Every start logs a warning for each of them "
            "([security.md](security.md)).",
            _SECURITY,
        ),
    ] = False
    users_file: Annotated[
        Path | None,
        Setting(
            kinds.optional(kinds.PATH, "none"),
            "The file with the users for listeners with `authentication: scram`, written by "
            "`hermes users`. It is reloaded when it changes.",
            _SECURITY,
        ),
    ] = None
    authenticator: Annotated[
        str,
        Setting(
            kinds.TEXT,
            "Where users come from: `users-file`, or a plugin's name (docs/plugins.md).",
            _SECURITY,
        ),
    ] = USERS_FILE
    authenticator_options: Annotated[
        Mapping[str, Any],
        Setting(
            kinds.SECRET_OPTIONS,
            "Options for an authenticator plugin. The values are never shown.",
            _SECURITY,
        ),
    ] = field(default_factory=dict, repr=False)
    token_verifier: Annotated[
        str,
        Setting(
            kinds.TEXT,
            "What checks the tokens of listeners with `authentication: token`: `oidc`, or a "
            "plugin's name (docs/plugins.md).",
            _SECURITY,
        ),
    ] = "oidc"
    token_verifier_options: Annotated[
        Mapping[str, Any],
        Setting(
            kinds.SECRET_OPTIONS,
            "Options for the verifier of tokens: of `oidc` at least `issuer` and `audience`. The "
            "values are never shown.",
            _SECURITY,
        ),
    ] = field(default_factory=dict, repr=False)
    access: Annotated[
        tuple[AccessRule, ...] | None,
        Setting(
            ACCESS_RULES,
            "Who may do what: `[{principal: alice, operations: [produce], topic: web-*}]`. A rule "
            "with `allow: false` wins, and whatever no rule allows is refused. If unset, anyone "
            "who can connect may do everything.",
            _SECURITY,
            is_live=True,
        ),
    ] = None
    authorizer: Annotated[
        str,
        Setting(
            kinds.TEXT,
            "What makes access decisions: `rules` (those of `access`), or a plugin's name "
            "(docs/plugins.md).",
            _SECURITY,
        ),
    ] = RULES
    authorizer_options: Annotated[
        Mapping[str, Any],
        Setting(
            kinds.SECRET_OPTIONS,
            "Options for an authorizer plugin. The values are never shown.",
            _SECURITY,
        ),
    ] = field(default_factory=dict, repr=False)
    quotas: Annotated[
        Mapping[str, Quota],
        Setting(
            QUOTAS,
            "Limits per principal and second, over all of its connections: `{default: "
            "{bytes_in: 10MB, bytes_out: 50MB, requests: 1000, connections: 100}, alice: "
            "{bytes_in: unlimited}}`. Clients over quota are throttled.",
            _SECURITY,
            is_live=True,
        ),
    ] = field(default_factory=dict)
    connect_as: Annotated[
        ConnectAs | None,
        Setting(
            kinds.optional(CONNECT_AS, "nobody, without TLS"),
            "The credentials that the broker uses as a client: of ZooKeeper, and of other brokers "
            "for the console and the registry "
            "([security.md](security.md#http)). Files are read when needed.",
            _SECURITY,
        ),
    ] = None

    max_request_bytes: Annotated[
        int,
        Setting(
            kinds.size(1, kinds.INT32_MAX),
            "The largest request. One that announces more closes its connection before anything "
            "is stored.",
            _LIMITS,
            replaces=("max.socket.request.bytes",),
            is_live=True,
        ),
    ] = 100 << 20
    max_message_bytes: Annotated[
        int,
        Setting(
            kinds.size(1, kinds.INT32_MAX),
            "The largest payload of a message (of the wrapper, if compressed); a set with a larger "
            "one is dropped.",
            _LIMITS,
            replaces=("max.message.size",),
            is_live=True,
        ),
    ] = 1_000_000
    max_expanded_bytes: Annotated[
        int,
        Setting(
            kinds.size(1),
            "How large a compressed set may become when it is decompressed for validation; beyond "
            "that the connection is closed and nothing of the set is stored.",
            _LIMITS,
            is_live=True,
        ),
    ] = 64 << 20
    max_connections: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "The largest number of connections; further ones are closed at once.",
            _LIMITS,
            is_live=True,
        ),
    ] = 20_000
    idle_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "A connection is closed after being idle for one to two times this long; `0`: never.",
            _LIMITS,
            is_live=True,
        ),
    ] = 10 * _MINUTE
    request_memory_bytes: Annotated[
        int,
        Setting(
            kinds.size(1),
            "Memory for requests that are being received; beyond it, reading pauses.",
            _LIMITS,
            key="request_memory",
            is_live=True,
        ),
    ] = 24 << 20
    fetch_session_memory_bytes: Annotated[
        int,
        Setting(
            kinds.size(0),
            "Memory for the fetch sessions of Kafka's consumers; `0`: none are offered. A session "
            "of 1,000 partitions takes some 320 KB.",
            _LIMITS,
            key="fetch_session_memory",
            is_live=True,
        ),
    ] = 32 << 20
    max_topics: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "The largest number of topics on this broker. Further ones are not created: an "
            "acknowledged produce gets error 72, any other closes its connection. Existing topics "
            "are always served.",
            _LIMITS,
            is_live=True,
        ),
    ] = 10_000
    max_partitions: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "The same for partitions with data, over all topics; each takes about 5 KB of memory "
            "and one or two file descriptors.",
            _LIMITS,
            is_live=True,
        ),
    ] = 20_000
    max_open_segments: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "How many old segments stay open for reading; the least recently used are closed.",
            _LIMITS,
            is_live=True,
        ),
    ] = 1000

    format: Annotated[
        str,
        Setting(
            kinds.LOG_FORMAT,
            "The format of new topics, unless set under `topics` or as one is created: Kafka 0.7's "
            "messages, or Kafka 4's record batches. A topic that a client of Kafka is first to "
            "name is `kafka`, one that a client of Kafka 0.7 produces to first is `0.7`. Those "
            "that exist keep theirs. The same on all brokers of a cluster.",
            _TOPICS,
            is_live=True,
        ),
    ] = kinds.FORMAT_0_7
    num_partitions: Annotated[
        int,
        Setting(
            kinds.PARTITION_COUNT,
            "The number of partitions of a topic on this broker, unless set under `topics`.",
            _TOPICS,
            replaces=("num.partitions",),
            is_live=True,
        ),
    ] = 1
    auto_create_topics: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether the first produce to a topic creates it. Otherwise there are only the topics "
            "under `topics`, those on disk, and those created by request.",
            _TOPICS,
            is_live=True,
        ),
    ] = True
    max_topic_name_length: Annotated[
        int,
        Setting(
            kinds.whole_number(1, kinds.INT32_MAX),
            "The longest topic name, in characters. Names too long for the file system are "
            "refused in any case.",
            _TOPICS,
            replaces=("max.topic.name.length",),
            is_live=True,
        ),
    ] = 255
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    #: What `hermes topics` has set while a broker ran, by topic: before what `topics` says.
    altered: Mapping[str, TopicConfig] = field(default_factory=dict)
    #: What Kafka's clients have set while a broker ran, beside `access` and `quotas`.
    requested: Requested = field(default_factory=Requested)
    #: The attributes that broker.yaml gave.
    given: frozenset[str] = field(default=frozenset(), compare=False)

    default_replication_factor: Annotated[
        int,
        Setting(
            COPY_COUNT,
            "How many brokers have a copy of each partition of a new topic with `format: kafka`, "
            "unless its creation says it. More than 1 needs `kafka_listen` and coordination.",
            _REPLICATION,
            is_live=True,
        ),
    ] = 1
    default_min_insync_replicas: Annotated[
        int | None,
        Setting(
            MIN_INSYNC,
            "How many copies must be in sync for messages to be taken with `acks=all`, and to "
            "become visible; of a topic with fewer copies all. Unless set it is half of them, "
            "rounded up: 1 of 2, 2 of 3.",
            _REPLICATION,
            is_live=True,
        ),
    ] = None
    unclean_leader_election: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether a copy that may lack messages leads when no copy in sync has been there for "
            "`replica_lag_time`. What it lacks is lost then.",
            _REPLICATION,
            is_live=True,
        ),
    ] = False
    replica_lag_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "A copy that hasn't had everything for this long is no longer in sync.",
            _REPLICATION,
            key="replica_lag_time",
        ),
    ] = 10 * _SECOND
    replication_listener: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.TEXT, "the first of `kafka_listen`"),
            "The name of the one of `kafka_listen` at which brokers fetch from each other; the "
            "same on all of them.",
            _REPLICATION,
        ),
    ] = None
    replicate_as: Annotated[
        ConnectAs | None,
        Setting(
            kinds.optional(CONNECT_AS, "nobody, without TLS"),
            "The credentials with which the broker fetches from others, in the form of "
            "`connect_as`. With access rules it needs `replicate` of the cluster there.",
            _REPLICATION,
        ),
    ] = None
    rack: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.TEXT, "none"),
            "Where the broker stands, for instance the data centre's zone: copies of a partition "
            "are placed in different racks.",
            _REPLICATION,
        ),
    ] = None

    log_dir: Annotated[
        Path,
        Setting(
            kinds.PATH,
            "The data directory, in Kafka 0.7's layout. A relative path starts at broker.yaml's "
            "directory.",
            _STORAGE,
            replaces=("log.dir",),
        ),
    ]
    segment_bytes: Annotated[
        int,
        Setting(
            kinds.size(1, kinds.INT32_MAX),
            "A new segment is started when the current one is larger than this, which is below "
            "2 GiB.",
            _STORAGE,
            replaces=("log.file.size",),
            is_live=True,
        ),
    ] = 1 << 30
    segment_age_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "A new segment is started when the first append to the current one is older than this.",
            _STORAGE,
            replaces=("log.roll.hours",),
            is_live=True,
        ),
    ] = 7 * _DAY
    retention_policy: Annotated[
        str,
        Setting(
            kinds.TEXT,
            "What deletes old segments: `time`, `size`, `time-and-size`, or a plugin's name "
            "(docs/plugins.md).",
            _STORAGE,
            is_live=True,
        ),
    ] = "time-and-size"
    retention_time_ms: Annotated[
        int | None,
        Setting(
            kinds.RETAINED_TIME,
            "Segments whose last append is older than this are deleted.",
            _STORAGE,
            replaces=("log.retention.hours",),
            is_live=True,
        ),
    ] = 7 * _DAY
    retention_bytes: Annotated[
        int | None,
        Setting(
            kinds.RETAINED_BYTES,
            "The oldest segments of a partition are deleted as long as at least this much remains.",
            _STORAGE,
            replaces=("log.retention.size",),
            is_live=True,
        ),
    ] = None
    retention_options: Annotated[
        Mapping[str, Any],
        Setting(
            kinds.OPTIONS,
            "Options for a retention policy plugin.",
            _STORAGE,
            is_live=True,
        ),
    ] = field(default_factory=dict)
    retention_check_interval_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "How often the retention policies are applied.",
            _STORAGE,
            replaces=("log.cleanup.interval.mins",),
            is_live=True,
        ),
    ] = 10 * _MINUTE
    damage_check_rate: Annotated[
        int,
        Setting(
            kinds.size(0),
            "How many bytes per second are read to find damaged messages, all segments at most "
            "once a day; `0`: none (docs/failures.md).",
            _STORAGE,
            is_live=True,
        ),
    ] = 1 << 20

    flush_messages: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "A partition is flushed after this many unflushed messages; only flushed messages "
            "are visible. 0.7's default is 500.",
            _FLUSH,
            replaces=("log.flush.interval",),
            is_live=True,
        ),
    ] = 1
    flush_interval_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "The longest time before a message is flushed.",
            _FLUSH,
            replaces=("log.default.flush.interval.ms",),
            is_live=True,
        ),
    ] = 3 * _SECOND
    flush_check_interval_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "Lower bound for `flush_interval`, imitating 0.7's periodic check (every 3s there). "
            "`0`: no bound.",
            _FLUSH,
            replaces=("log.default.flush.scheduler.interval.ms",),
            is_live=True,
        ),
    ] = 0
    flush_threads: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "Threads that flush; a partition uses one at a time.",
            _FLUSH,
            is_live=True,
        ),
    ] = 2

    coordination: Annotated[
        str,
        Setting(
            kinds.choice("none", "embedded", "zookeeper"),
            "How brokers and clients find each other. `embedded`: through a small server in the "
            "broker's process that speaks ZooKeeper's protocol, for one machine. `zookeeper`: "
            "through an ensemble. `none`: clients are configured with the brokers' addresses.",
            _COORDINATION,
            replaces=("enable.zookeeper",),
        ),
    ] = "embedded"
    coordination_listen: Annotated[
        ListenerConfig,
        Setting(
            LISTENER,
            "Where embedded coordination listens: one [listener](#listeners).",
            _COORDINATION,
        ),
    ] = _COORDINATION_LISTEN
    coordination_max_bytes: Annotated[
        int,
        Setting(
            kinds.size(1 << 20),
            "Memory for embedded coordination's nodes; beyond it new ones are refused.",
            _COORDINATION,
        ),
    ] = 64 << 20
    zookeeper_connect: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.ENSEMBLE, "none"),
            "`host:port,host:port/chroot` of a ZooKeeper ensemble.",
            _COORDINATION,
            replaces=("zk.connect",),
        ),
    ] = None
    zookeeper_session_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "ZooKeeper removes the broker's registration after this long without contact.",
            _COORDINATION,
            replaces=("zk.sessiontimeout.ms",),
        ),
    ] = 6 * _SECOND
    zookeeper_connection_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "How long to wait for the first connection to ZooKeeper.",
            _COORDINATION,
            replaces=("zk.connectiontimeout.ms",),
        ),
    ] = 6 * _SECOND
    zookeeper_sync_time_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "Accepted for 0.7's files, without effect: no broker uses it there either. 0.7's "
            "consumers wait this long between attempts to rebalance (here `rebalance_backoff` of "
            "`ConsumerConfig`).",
            _COORDINATION,
            replaces=("zk.synctime.ms",),
        ),
    ] = 2 * _SECOND

    group_initial_rebalance_delay_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "How long the first rebalance of an empty group waits for more members to join; each "
            "new member extends the wait, within the rebalance timeout. Use `0` in tests.",
            _GROUPS,
            is_live=True,
        ),
    ] = 3 * _SECOND
    group_min_session_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "The shortest session timeout that a member may request.",
            _GROUPS,
            is_live=True,
        ),
    ] = 6 * _SECOND
    group_max_session_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "The longest session timeout that a member may request.",
            _GROUPS,
            is_live=True,
        ),
    ] = 30 * _MINUTE
    group_max_members: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "The largest number of members in a group; further ones are refused "
            "(GROUP_MAX_SIZE_REACHED).",
            _GROUPS,
            is_live=True,
        ),
    ] = 1000
    group_consumer_session_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "How long a member of a consumer group (`group.protocol=consumer`) may go without a "
            "heartbeat before it is considered dead; such members don't choose it themselves.",
            _GROUPS,
            is_live=True,
        ),
    ] = 45 * _SECOND
    group_consumer_heartbeat_interval_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "How often members of a consumer group send heartbeats; less than "
            "`group_consumer_session_timeout`.",
            _GROUPS,
            is_live=True,
        ),
    ] = 5 * _SECOND
    group_consumer_assignors: Annotated[
        tuple[str, ...],
        Setting(
            kinds.choices("uniform", "range"),
            "The assignors that consumer groups may use. The first is the default for members "
            "that request none.",
            _GROUPS,
            is_live=True,
        ),
    ] = ("uniform", "range")
    max_groups: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "The largest number of groups that this broker coordinates; further ones are refused "
            "(GROUP_MAX_SIZE_REACHED).",
            _GROUPS,
            is_live=True,
        ),
    ] = 10_000
    group_memory_bytes: Annotated[
        int,
        Setting(
            kinds.size(1),
            "Memory for the members and offsets of all these groups. Beyond it new members are "
            "refused (GROUP_MAX_SIZE_REACHED), and so are commits for further partitions "
            "(INVALID_COMMIT_OFFSET_SIZE).",
            _GROUPS,
            key="group_memory",
            is_live=True,
        ),
    ] = 64 << 20
    offsets_retention_ms: Annotated[
        int,
        Setting(
            kinds.duration(1),
            "How long a group's offsets are kept after it becomes empty; for topics that an "
            "active group no longer subscribes to, how long after the commit.",
            _GROUPS,
            is_live=True,
        ),
    ] = 7 * _DAY

    http_listen: Annotated[
        tuple[ListenerConfig, ...] | None,
        Setting(
            kinds.optional(LISTENERS, "off"),
            "Where to serve metrics, health checks, the console and the registry, in the form of "
            "`listen`, for instance `tcp:9093:interface=127.0.0.1`. Off unless set.",
            _HTTP,
        ),
    ] = None
    http_hosts: Annotated[
        tuple[str, ...],
        Setting(
            kinds.HOSTS,
            "Host names and addresses, without a port, by which browsers may reach this broker, "
            "besides those of the loopback interface. Requests for other names are refused "
            "(except `/metrics` and `/health`), to prevent DNS rebinding.",
            _HTTP,
            is_live=True,
        ),
    ] = ()
    console_actions: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether the web console may change something: topics, messages that are produced, "
            "groups and their offsets. Otherwise it only shows.",
            _HTTP,
            is_live=True,
        ),
    ] = False
    console_password_file: Annotated[
        str | None,
        Setting(
            kinds.optional(kinds.PATH, "no password"),
            "The file with the web console's password, as `hermes console --write-password FILE` "
            "makes it. Without one the console is served on the loopback interface only.",
            _HTTP,
        ),
    ] = None

    registry: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether `http_listen` serves a schema registry at `/registry`. Its events are kept "
            "in the topic `hermes-schemas`, to which no retention applies.",
            _HTTP,
        ),
    ] = True

    metrics_per_partition: Annotated[
        bool,
        Setting(
            kinds.TRUTH,
            "Whether `/metrics` has series per partition: size, segments, offsets, time of the "
            "last append, group lag. Without them a scrape with ten thousand partitions is a "
            "tenth as long; series per topic remain.",
            _HTTP,
            is_live=True,
        ),
    ] = True
    ready_min_free_bytes: Annotated[
        int,
        Setting(
            kinds.size(0),
            "`/health/ready` fails when the file system of `log_dir` has less free space than "
            "this.",
            _HTTP,
            is_live=True,
            key="ready_min_free",
        ),
    ] = 256 << 20

    mirror: Annotated[
        EmbeddedMirror | None,
        Setting(
            kinds.optional(EMBEDDED_MIRROR, "none"),
            "Topics of other clusters to copy into this one, as mirror.yaml has them: "
            "`{name: west, sources: [{name: east, zookeeper: HOST:PORT}], whitelist: clicks}`. "
            "The broker runs the mirror as a separate process.",
            _MIRROR,
            is_live=True,
        ),
    ] = None

    io_threads: Annotated[
        int,
        Setting(
            kinds.COUNT,
            "Threads for work that may block on a disk or on ZooKeeper: cold reads, large "
            "compressed sets and requests, lookups by time, retention, deletes, recovery.",
            _PROCESS,
            replaces=("num.threads",),
            is_live=True,
        ),
    ] = 4
    stop_timeout_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "How long responses in flight may take after SIGTERM before their connections are "
            "closed.",
            _PROCESS,
            is_live=True,
        ),
    ] = 10 * _SECOND
    metrics_interval_ms: Annotated[
        int,
        Setting(
            kinds.duration(),
            "How often a line of counters is logged; `0`: never.",
            _PROCESS,
            replaces=("monitoring.period.secs",),
            is_live=True,
        ),
    ] = 10 * _MINUTE
    log_format: Annotated[
        str,
        Setting(
            kinds.choice("text", "json"),
            "The format of log lines: for people or for machines.",
            _PROCESS,
            is_live=True,
        ),
    ] = "text"
    log_level: Annotated[
        str,
        Setting(
            kinds.choice(*kinds.LOG_LEVELS),
            "The lowest level that is logged.",
            _PROCESS,
            is_live=True,
        ),
    ] = "info"
    log_levels: Annotated[
        Mapping[str, str],
        Setting(
            kinds.MODULE_LEVELS,
            "The lowest level for single modules and their submodules, by the names that log "
            "lines begin with: "
            "`{hermes.partition.flushing: debug, hermes.coordination: warn}`.",
            _PROCESS,
            is_live=True,
        ),
    ] = field(default_factory=dict)
    log_rotate_bytes: Annotated[
        int | None,
        Setting(
            kinds.unlimited_or(kinds.size(1)),
            "A log file larger than this is rotated, as on SIGUSR1.",
            _PROCESS,
            is_live=True,
        ),
    ] = 10_000_000
    log_keep_files: Annotated[
        int | None,
        Setting(
            kinds.unlimited_or(kinds.COUNT),
            "How many rotated log files are kept; the oldest are deleted.",
            _PROCESS,
            is_live=True,
        ),
    ] = 10
    ready_file: Annotated[
        Path | None,
        Setting(
            kinds.optional(kinds.PATH, "none"),
            "A JSON file with the actual addresses, written when every port is open; one that a "
            "killed broker has left is removed at the start. "
            "`--ready-file` overrides it.",
            _PROCESS,
        ),
    ] = None

    @property
    def knows_users(self) -> bool:
        return self.users_file is not None or self.authenticator != USERS_FILE

    def listeners(self) -> Iterator[tuple[str, tuple[ListenerConfig, ...]]]:
        yield "listen", self.listen
        if self.kafka_listen:
            yield "kafka_listen", self.kafka_listen
        if self.coordination == "embedded":
            yield "coordination_listen", (self.coordination_listen,)
        if self.http_listen:
            yield "http_listen", self.http_listen
        if self.mirror is not None and self.mirror.config.http_listen:
            yield "mirror.http_listen", self.mirror.config.http_listen

    @property
    def is_guarded(self) -> bool:
        """Whether some who can connect may not do everything, or need TLS to connect.

        The broker's own process then has a way of its own to connect to itself.
        """
        has_rules = self.access is not None or self.authorizer != RULES
        return (
            has_rules
            or self.connect_as is not None
            or any(
                each.tls is not None or each.authentication != NONE
                for setting, listeners in self.listeners()
                if setting != "mirror.http_listen"
                for each in listeners
            )
        )

    @property
    def rules(self) -> tuple[AccessRule, ...] | None:
        """All access rules; None without any. A plugin hears of broker.yaml's alone."""
        if self.access is None or self.authorizer != RULES:
            return self.access
        if not self.requested.is_known:  # one of the cluster's may deny what broker.yaml's allow
            return ()
        return (*self.access, *self.requested.rules)

    @property
    def shares_users(self) -> bool:
        """Whether users may be the cluster's: where coordination shows them to its brokers only."""
        is_private = self.coordination == "embedded" or (
            self.coordination == "zookeeper"
            and self.connect_as is not None
            and self.connect_as.user is not None
        )
        is_file = self.authenticator == USERS_FILE and self.users_file is not None
        return is_private and is_file and bool(self.kafka_listen)

    def quota(self, principal: str) -> Quota | None:
        return quota_in_force(self.quotas, self.requested.quotas, principal)

    def topic(self, name: str) -> TopicSettings:
        found = self._topic_settings.get(name)
        if found is None:
            if name not in self.topics and name not in self.altered:
                return self._topic_defaults
            found = self._topic_settings[name] = self._composed(name)
        return found

    def _composed(self, topic: str, **defaults: Any) -> TopicSettings:
        given = [each[topic].given() for each in (self.topics, self.altered) if topic in each]
        values = {key: each[key] for each in (defaults, *given) for key in each}
        return replace(self._topic_defaults, **values)

    def with_altered(self, altered: "Mapping[str, TopicConfig]") -> "BrokerConfig":
        return replace(self, altered=altered)

    @cached_property
    def _topic_defaults(self) -> TopicSettings:
        values = {
            setting.attribute: getattr(self, DEFAULT_OF.get(setting.attribute, setting.attribute))
            for setting in TOPIC_SETTINGS.values()
            if setting.attribute not in TOPIC_ONLY
        }
        limit = self.max_message_bytes
        if limit == BrokerConfig.max_message_bytes and "max_message_bytes" not in self.given:
            values["max_batch_bytes"] = MAX_BATCH_BYTES
        return TopicSettings(**values, **TOPIC_ONLY)

    @cached_property
    def _topic_settings(self) -> dict[str, TopicSettings]:
        """Only of topics that were asked for: there may be ten thousand."""
        own = {each: self._composed(each, format=kinds.FORMAT_0_7) for each in OWN_TOPICS}
        return {**own, SCHEMAS_TOPIC: untrimmed(own[SCHEMAS_TOPIC])}


BROKER_SETTINGS: Final[Mapping[str, Setting]] = table_of(BrokerConfig)
