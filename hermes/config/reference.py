"""Generates docs/configuration.md from the tables of settings; a test compares it with the file."""

from collections.abc import Iterable, Iterator

from hermes.config.broker import BROKER_SETTINGS
from hermes.config.setting import Setting
from hermes.config.topic import DEFAULT_OF, TOPIC_ONLY, TOPIC_SETTINGS

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m hermes.config > docs/configuration.md`; change hermes/config instead. -->

A broker reads one YAML file: `twistd -n hermes --config broker.yaml`. Two settings are required;
a third is worth a thought:

```yaml
broker_id: 0
log_dir: /var/lib/hermes
format: kafka
```

Topics need no settings, but **a topic keeps the format that it is created with**:

| what names a topic first | its format |
|---|---|
| a client of Kafka | `kafka` |
| `hermes produce`, `hermes topics create`, Hermes' library | what `format` says |
| a client of Kafka 0.7 | `0.7` |

`format` is `0.7` unless it is given: as above for all new topics, by
`topics: {orders: {format: kafka}}` or `hermes topics create --set format=kafka` for one. Who speaks
0.7 only is refused by a topic that is declared to be `kafka`. `hermes topics list` shows each
topic's. The topics
`hermes-audit` and `hermes-schemas`, which only Hermes itself uses, are `0.7` in any case.

[examples/broker.yaml](../examples/broker.yaml) is a longer example. The file is checked before
anything starts: an unknown key, a wrong type or a bad unit is reported in one line on stderr, which
names the key and what was expected, with exit status 1. `hermes config check broker.yaml` does only
that.

- **Sizes** are written `1GiB`, `64KiB` (binary: 1024), `100MB`, `500kB` (decimal: 1000), or as a
  plain number of bytes. `64k` is refused, since it could mean either.
- **Durations** are written `500ms`, `30s`, `10m`, `1h30m`, `7d`, `1w`, or `0`. A number without a
  unit is refused.
- **Endpoints** are [Twisted's](https://docs.twisted.org/en/stable/core/howto/endpoints.html):
  `tcp:9092`, `tcp:9092:interface=127.0.0.1`, `tcp6:9092:interface=\\:\\:1`,
  `unix:/run/hermes.sock` (for programs of your own, or a proxy: Hermes' clients and the command
  connect by TCP). Port 0 takes any free port; the log and the ready file say which.
- **While running**: settings marked so change when a running broker reads the file again, on SIGHUP
  or `hermes config reload`; the others need a restart. All per-topic settings change
  ([operations.md](operations.md#change-settings-while-it-runs)).
- **Relative paths** start at the directory of broker.yaml.
- **YAML** is read strictly: only `true` and `false` are booleans, a duplicate key is an error, and
  a topic may be called `123` or `no` without quotes.
"""

_LISTENERS = """\
## Listeners

`listen`, `http_listen` and `coordination_listen` take an endpoint string, or a mapping:

```yaml
broker_id: 0
log_dir: /var/lib/hermes
users_file: users
listen:
  - tcp:9092:interface=127.0.0.1
  - endpoint: tcp:9094
    name: outside
    advertised: kafka1.example.org:9094
    tls:
      certificate: kafka1.pem
      key: kafka1.key
    authentication: scram
```

{table}

A listener that other machines reach needs `tls`, and `authentication` or a required certificate;
without them the file is refused, unless it says `allow_insecure: true`. Over a loopback interface
or a UNIX socket anything goes. [security.md](security.md) has recipes.
"""

_LISTENER_KEYS = (
    (
        "`endpoint`",
        "endpoint",
        "**required**",
        "Where to listen.",
    ),
    (
        "`name`",
        "name",
        "its place, from `0`",
        "Matches listeners across brokers: a client that connects to a listener is given the "
        "addresses of the other brokers' listeners of the same name.",
    ),
    (
        "`advertised`",
        "`HOST:PORT` or `HOST`",
        "where it is bound",
        "The address that clients are given; overrides `advertised_host` and `advertised_port`.",
    ),
    (
        "`authentication`",
        "`none`, `tls`, `scram` or `token`",
        "`none`",
        "How clients authenticate: not at all, with a certificate, with a user name and password "
        "(SCRAM), or, on a listener of `kafka_listen`, with a bearer token (SASL/OAUTHBEARER), "
        "which needs `tls` or a loopback address.",
    ),
    (
        "`plain`",
        "`true` or `false`",
        "`false`",
        "Whether Kafka clients may also send their passwords as they are (SASL/PLAIN), on a "
        "listener of `kafka_listen` with `authentication: scram`. Needs `tls`, or a loopback "
        "address.",
    ),
    (
        "`tls`",
        "mapping",
        "no TLS",
        "The `tls.*` keys below.",
    ),
    (
        "`tls.certificate`",
        "path",
        "**required**",
        "The certificate and any intermediate certificates, in PEM format. Reloaded when the "
        "file changes.",
    ),
    (
        "`tls.key`",
        "path",
        "**required**",
        "Its private key in PEM format, without a passphrase.",
    ),
    (
        "`tls.client_ca`",
        "path",
        "none",
        "The authorities that client certificates must be signed by, in PEM format.",
    ),
    (
        "`tls.client_certificate`",
        "`none`, `optional` or `required`",
        "`required` with `client_ca`, else `none`",
        "Whether clients must present a certificate.",
    ),
    (
        "`tls.versions`",
        "`1.2` or `1.3`",
        "`1.2`",
        "The lowest TLS version.",
    ),
    (
        "`tls.ciphers`",
        "`intermediate` or `modern`",
        "`intermediate`",
        "[Mozilla's profiles](https://wiki.mozilla.org/Security/Server_Side_TLS).",
    ),
    (
        "`tls.principal`",
        "`CN`, `SUBJECT`, `SAN:DNS`, `SAN:EMAIL` or `SAN:URI`",
        "`CN`",
        "Which part of a client certificate is the principal's name.",
    ),
)

_TOPICS_INTRODUCTION = """\
## Per-topic settings

Under `topics`, by topic name. A setting that isn't given there falls back to the broker's. A topic
listed there is created when the broker starts, so producers know its partitions before its first
message; if it is deleted, the next start creates it again. Settings made with
`hermes topics create` and `alter` override the entry here, until `hermes topics alter --reset`.

```yaml
broker_id: 0
log_dir: /var/lib/hermes
topics:
  clicks:
    partitions: 8
    retention_time: 30d
  debug:
    retention_bytes: 1GiB
    retention_time: unlimited
```
"""

_KAFKA_INTRODUCTION = """\
## Coming from Kafka 0.7

`hermes config import server.properties > broker.yaml` translates a broker's file: every key below,
including units, and only what the file sets. Keys without an equivalent are named on stderr. Some
of Hermes' defaults differ: a message is visible after milliseconds rather than after 500 messages
or 3 seconds (`flush_messages`, `flush_check_interval`), the port is 9092 rather than 6667, and what
0.7 leaves unbounded has a limit.

Kafka 0.7 has no security: its brokers listen on every interface, and anyone who reaches them may do
everything. The import therefore writes `allow_insecure: true`. Without it, a broker that other
machines reach needs TLS and authentication ([security.md](security.md)).

`log.default.flush.scheduler.interval.ms` alone also sets `flush_interval`, as it does in 0.7.
`port` becomes an endpoint and `hostname` the advertised name; `enable.zookeeper=false` becomes
`coordination: none`.
"""


def reference() -> str:
    parts = [_INTRODUCTION]
    sections = dict.fromkeys(setting.section for setting in BROKER_SETTINGS.values())
    for section in sections:
        rows = [s for s in BROKER_SETTINGS.values() if s.section == section]
        parts.append(f"## {section}\n\n" + _table(rows))
    parts.append(_LISTENERS.replace("{table}", _listener_table()))
    parts.append(f"{_TOPICS_INTRODUCTION}\n{_topic_table()}")
    parts.append(f"{_KAFKA_INTRODUCTION}\n{_kafka_table()}")
    return "\n".join(parts)


def _table(settings: Iterable[Setting]) -> str:
    lines = ["| setting | value | default | while running | meaning |", "|---|---|---|---|---|"]
    for setting in settings:
        default = shown_default(setting)
        live = "changes" if setting.is_live else "restart"
        cells = f"`{setting.key}` | {setting.kind.name} | {default} | {live} | {setting.doc}"
        lines.append(f"| {cells} |")
    return "\n".join(lines) + "\n"


def _listener_table() -> str:
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(each)} |" for each in _LISTENER_KEYS)])


def _topic_table() -> str:
    lines = ["| setting | value | overrides | meaning |", "|---|---|---|---|"]
    for key, setting in TOPIC_SETTINGS.items():
        fallback = f"`{DEFAULT_OF.get(key, key)}`"
        if setting.attribute in TOPIC_ONLY:
            fallback = f"(default: `{setting.kind.show(TOPIC_ONLY[setting.attribute])}`)"
        lines.append(f"| `{key}` | {setting.kind.name} | {fallback} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def shown_default(setting: Setting) -> str:
    if setting.required:
        return "**required**"
    shown = setting.kind.show(setting.default)
    return shown if setting.default is None and shown != "unlimited" else f"`{shown}`"


def _kafka_table() -> str:
    lines = ["| Kafka 0.7 | Hermes |", "|---|---|", *sorted(_kafka_rows())]
    return "\n".join(lines) + "\n"


def _kafka_rows() -> Iterator[str]:
    for setting in BROKER_SETTINGS.values():
        for replaced in setting.replaces:
            yield f"| `{replaced}` | `{setting.key}` |"
    for setting in TOPIC_SETTINGS.values():
        for replaced in setting.replaces:
            yield f"| `{replaced}` | `topics: <topic>: {setting.key}` |"
