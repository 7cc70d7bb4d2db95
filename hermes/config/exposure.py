"""The safe default: without TLS and authentication a port is for this machine only.

`allow_insecure` lifts that. Looks at settings only.
"""

from collections.abc import Iterable, Iterator

from hermes.config.endpoints import read_endpoint
from hermes.config.listeners import BY_PASSWORD, BY_TOKEN, ListenerConfig
from hermes.errors import ConfigError
from hermes.quoting import quoted


def check_listeners(
    setting: str,
    listeners: Iterable[ListenerConfig],
    *,
    allow_insecure: bool,
    knows_users: bool,
) -> None:
    """Raises ConfigError: one is dangerous, or needs passwords that can't be checked."""
    names: set[str] = set()
    for each in listeners:
        if each.name in names:
            raise ConfigError(setting, f"two listeners are called {quoted(each.name)}")
        names.add(each.name)
        if each.plain and setting != "kafka_listen":
            raise ConfigError(setting, "plain: it is for listeners of kafka_listen")
        if each.authentication == BY_TOKEN and setting != "kafka_listen":
            raise ConfigError(
                setting, "authentication: token is for listeners of kafka_listen (SASL/OAUTHBEARER)"
            )
        if each.authentication == BY_PASSWORD and not knows_users:
            raise ConfigError(
                setting,
                f"{each.endpoint!r} has authentication: scram, and there are no users: "
                "set users_file (`hermes users add NAME --file FILE` makes one)",
            )
        if not (each.is_safe or allow_insecure):
            raise ConfigError(
                setting,
                f"{each.endpoint!r} can be reached from other machines, and {each.danger}: "
                f"give it tls and authentication (docs/security.md), or {_own(each)}, "
                "or set allow_insecure: true",
            )


def _own(listener: ListenerConfig) -> str:
    endpoint = read_endpoint(listener.endpoint)
    if endpoint.kind == "tcp" and not endpoint.interface:
        return f"listen on {listener.endpoint}:interface=127.0.0.1"
    return "listen on 127.0.0.1"


def warnings_of(setting: str, listeners: Iterable[ListenerConfig]) -> Iterator[str]:
    for each in listeners:
        if not each.is_safe:
            yield (
                f"{setting}: {each.endpoint} can be reached from other machines, and {each.danger} "
                "(allow_insecure: true; see docs/security.md)"
            )
