"""The mirror that a broker runs beside itself: `mirror:` in broker.yaml."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hermes.config.connect_as import CONNECT_AS_PATHS
from hermes.config.kinds import Kind
from hermes.config.mirror import MirrorConfig, parse_mirror_config
from hermes.errors import ConfigError
from hermes.quoting import quoted

_PATHS: Final = ("certificate", "key", "client_ca")


@dataclass(frozen=True)
class EmbeddedMirror:
    """The mirror that a broker runs, as broker.yaml has it.

    Attributes:
        settings: a mirror.yaml as JSON, where `target` may be missing.
        config: the same; the target is meaningless where it is missing.
    """

    settings: str
    config: MirrorConfig = field(compare=False)

    def line(
        self,
        target: Mapping[str, Any],
        *,
        allow_insecure: bool = False,
        users_file: Path | None = None,
    ) -> bytes:
        """The settings as a line of JSON, for the process that runs it.

        Args:
            target: the broker's own cluster: what `target` is unless it is given.
            allow_insecure: the broker's, for a mirror that doesn't give its own.
            users_file: likewise.
        """
        defaults = {
            "target": target,
            "allow_insecure": allow_insecure,
            "users_file": users_file and str(users_file),
        }
        return json.dumps({**defaults, **json.loads(self.settings)}).encode()

    def relative_to(self, base: Path) -> "EmbeddedMirror":
        """The same, with paths that start at a directory where they are relative."""
        values = json.loads(self.settings)
        listeners = values.get("http_listen")
        for each in listeners if isinstance(listeners, list) else [listeners]:
            tls = each.get("tls") if isinstance(each, Mapping) else None
            for key in _PATHS:
                if tls and tls.get(key) is not None:
                    tls[key] = _absolute(base, tls[key])
        sources = values["sources"]
        for each in (*sources, values.get("target") or {}):
            connect_as = each.get("connect_as") or {}
            for key in CONNECT_AS_PATHS:
                if connect_as.get(key) is not None:
                    connect_as[key] = _absolute(base, connect_as[key])
        if values.get("users_file") is not None:
            values["users_file"] = _absolute(base, values["users_file"])
        return replace(self, settings=json.dumps(values))


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
