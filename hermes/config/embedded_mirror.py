"""The mirror that a broker runs beside itself: `mirror:` in broker.yaml."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hermes.config.connect_as import CONNECT_AS_PATHS
from hermes.config.kinds import Kind
from hermes.config.mirror import MirrorConfig, OwnBroker, parse_mirror_config
from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.security import ClientSecurity

_PATHS: Final = ("certificate", "key", "client_ca")


@dataclass(frozen=True)
class EmbeddedMirror:
    """`settings`: a mirror.yaml as JSON, where `target` may be missing.

    `config`: the same, parsed; the target is meaningless where it is missing.
    """

    settings: str
    config: MirrorConfig = field(compare=False)

    def line(
        self,
        target: Mapping[str, Any],
        *,
        allow_insecure: bool = False,
        users_file: Path | None = None,
        own: OwnBroker | None = None,
    ) -> bytes:
        """The settings as a line of JSON, for the process that runs the mirror.

        Args:
            target: the broker's own cluster: the default of `target`.
            allow_insecure, users_file: the broker's, for a mirror that doesn't give its own.
            own: the broker, where clients need credentials. The line then has its password: it is
                for nobody but that process, by a pipe.
        """
        defaults: dict[str, Any] = {
            "target": target,
            "allow_insecure": allow_insecure,
            "users_file": users_file and str(users_file),
        }
        settings = json.loads(self.settings)
        if own is not None and "target" not in settings:
            defaults["own"] = {
                "broker_id": own.broker_id,
                "address": own.address,
                "user": own.security.user,
                "password": own.security.password,
                "zookeeper": own.zookeeper,
                "has_own_coordination": own.has_own_coordination,
            }
        return json.dumps({**defaults, **settings}).encode()

    def relative_to(self, base: Path) -> "EmbeddedMirror":
        values = json.loads(self.settings)
        listeners = values.get("http_listen")
        for each in listeners if isinstance(listeners, list) else [listeners]:
            tls = each.get("tls") if isinstance(each, Mapping) else None
            for key in _PATHS:
                if tls and tls.get(key) is not None:
                    tls[key] = _absolute(base, tls[key])
        sources = values["sources"]
        for each in (*sources, values.get("target") or {}, values.get("audit_to") or {}):
            connect_as = each.get("connect_as") or {}
            for key in CONNECT_AS_PATHS:
                if connect_as.get(key) is not None:
                    connect_as[key] = _absolute(base, connect_as[key])
        if values.get("users_file") is not None:
            values["users_file"] = _absolute(base, values["users_file"])
        return _parse_embedded(values)


def parse_line(line: bytes) -> MirrorConfig:
    """Parse what `EmbeddedMirror.line` has made. Blocks: reads passwords. Raises ConfigError."""
    try:
        values = json.loads(line)
        own = values.pop("own", None)
    except (ValueError, AttributeError):
        raise ConfigError("mirror", "the line does not hold settings as JSON") from None
    config = parse_mirror_config(values, "mirror").with_passwords()
    if own is None:
        return config
    host, port = own["address"]
    security = ClientSecurity(user=own["user"], password=own["password"])
    place = OwnBroker(
        own["broker_id"], (host, port), security, own["zookeeper"], own["has_own_coordination"]
    )
    return replace(config, target=replace(config.target, own=place))


def _absolute(base: Path, path: str) -> str:
    return str(base / Path(path).expanduser())


def _parse_embedded(value: object) -> EmbeddedMirror:
    try:
        config = parse_mirror_config(value, default_target={"brokers": "localhost:9092"})
        return EmbeddedMirror(json.dumps(value), config)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    except TypeError:  # YAML knows values that JSON doesn't
        raise ValueError(
            f"expected texts, numbers, lists and mappings, got {quoted(value)}"
        ) from None


EMBEDDED_MIRROR: Final = Kind(
    "mapping of [a mirror's settings](mirror.md#settings)",
    _parse_embedded,
    lambda value: str(value.settings),
)
