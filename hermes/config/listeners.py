"""Parses listeners: where to listen, and by which rules.

Each is an endpoint string of Twisted's, or a mapping with one:

    listen:
      - tcp:9092:interface=127.0.0.1
      - endpoint: tcp:9093
        name: outside
        advertised: kafka1.example.org:9093
        tls: {certificate: kafka1.pem, key: kafka1.key}
        authentication: scram

Knows neither Twisted nor files: whether an endpoint opens and a certificate loads turns out later.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from hermes.config.endpoints import ENDPOINT_EXAMPLE, parse_endpoint, read_endpoint
from hermes.config.kinds import PATH, Kind
from hermes.quoting import quoted

NONE: Final = "none"
BY_CERTIFICATE: Final = "tls"
BY_PASSWORD: Final = "scram"
BY_TOKEN: Final = "token"

CERTIFICATE_DEMANDS: Final = (NONE, "optional", "required")
TLS_VERSIONS: Final = ("1.2", "1.3")
CIPHER_PROFILES: Final = ("intermediate", "modern")
PRINCIPAL_RULES: Final = ("CN", "SUBJECT", "SAN:DNS", "SAN:EMAIL", "SAN:URI")

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
_ADVERTISED: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """A listener's TLS. docs/security.md explains the settings.

    Attributes:
        certificate: PEM file with the certificate, and those between it and its authority.
        key: PEM file with its private key, without a passphrase.
        client_ca: PEM file with the authorities of clients' certificates; None for none.
        client_certificate: whether clients bring one: `none`, `optional` or `required`.
        versions: the lowest: `1.2` or `1.3`.
        ciphers: Mozilla's profile: `intermediate` or `modern`.
        principal: what of a client's certificate names it, one of `PRINCIPAL_RULES`.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    client_certificate: str = NONE
    versions: str = "1.2"
    ciphers: str = "intermediate"
    principal: str = "CN"

    def relative_to(self, base: Path) -> "TlsConfig":
        return replace(
            self,
            certificate=base / self.certificate,
            key=base / self.key,
            client_ca=self.client_ca and base / self.client_ca,
        )


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A port, and the rules for those who connect to it.

    Attributes:
        tls: None for no TLS.
        authentication: `none`, `tls` (by certificate), `scram`, or `token` (SASL/OAUTHBEARER).
        advertised: `HOST:PORT` or `HOST` by which clients reach it; None: where it is bound.
        name: unique within its setting; its index there unless given.
        plain: whether Kafka's clients may send their passwords as they are (SASL/PLAIN).
    """

    endpoint: str
    tls: TlsConfig | None = None
    authentication: str = NONE
    advertised: str | None = None
    name: str = "0"
    plain: bool = False

    def __str__(self) -> str:
        return self.endpoint

    @property
    def is_plain(self) -> bool:
        """Whether a client of Kafka 0.7 can use it: no TLS, no authentication."""
        return self.tls is None and self.authentication == NONE

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect: by a loopback address, or a UNIX socket."""
        return read_endpoint(self.endpoint).is_loopback

    @property
    def demands_proof(self) -> bool:
        has_certificate = self.tls is not None and self.tls.client_certificate == "required"
        return has_certificate or self.authentication != NONE

    @property
    def is_safe(self) -> bool:
        """Whether it may be opened without `allow_insecure`."""
        return self.is_loopback or (self.tls is not None and self.demands_proof)

    @property
    def danger(self) -> str:
        """What others could do there, in a few words; empty where it is safe."""
        if self.is_safe:
            return ""
        if not self.demands_proof:
            how = "" if self.tls is None else ", though by TLS"
            return f"whoever reaches it may read, write and delete everything{how}"
        return "without TLS, anybody on the path can read and change the traffic"

    @property
    def advertised_place(self) -> tuple[str, int | None]:
        """The host and port of `advertised`; "" and None for what it doesn't say."""
        match = _ADVERTISED.fullmatch(self.advertised or "")
        if match is None:
            return "", None
        return match[1].strip("[]"), int(match[2]) if match[2] else None

    def relative_to(self, base: Path) -> "ListenerConfig":
        return self if self.tls is None else replace(self, tls=self.tls.relative_to(base))


# -- mappings -----------------------------------------------------------------------------------

_LISTENER_KEYS: Final = tuple(each.name for each in fields(ListenerConfig))
_TLS_KEYS: Final = tuple(each.name for each in fields(TlsConfig))


def _parse_listener(value: object, place: int = 0) -> ListenerConfig:
    if not isinstance(value, Mapping):
        return ListenerConfig(parse_endpoint(value), name=str(place))
    _check_keys(value, _LISTENER_KEYS, "")
    if "endpoint" not in value:
        raise ValueError("a listener needs an endpoint such as tcp:9093")
    endpoint = parse_endpoint(value["endpoint"])
    name = value.get("name", str(place))
    if "name" in value and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ValueError(f"expected a name of letters, digits, '.', '_', '-', got {quoted(name)}")
    authentication = _choice(value, "authentication", (NONE, BY_CERTIFICATE, BY_PASSWORD, BY_TOKEN))
    tls = _parse_tls(value["tls"], authentication) if value.get("tls") is not None else None
    if tls is None and authentication == BY_CERTIFICATE:
        raise ValueError("authentication: tls needs tls, with client_ca")
    advertised = _parse_advertised(value.get("advertised"))
    plain = value.get("plain", False)
    if not isinstance(plain, bool):
        raise ValueError(f"plain: expected true or false, got {quoted(plain)}")
    listener = ListenerConfig(endpoint, tls, authentication, advertised, str(name), plain)
    if plain and authentication != BY_PASSWORD:
        raise ValueError("plain: it needs authentication: scram, for the users' passwords")
    if plain and tls is None and not listener.is_loopback:
        raise ValueError("plain: passwords as they are need tls, or a loopback address")
    if authentication == BY_TOKEN and tls is None and not listener.is_loopback:
        raise ValueError("authentication: token needs tls, or a loopback address")
    return listener


def _parse_advertised(value: object) -> str | None:
    if value is None:
        return None
    match = _ADVERTISED.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2] or 1) < 65536:
        raise ValueError(f"advertised: expected HOST:PORT or HOST, got {quoted(value)}")
    return match[0]


def _parse_tls(value: object, authentication: str) -> TlsConfig:
    if not isinstance(value, Mapping):
        raise ValueError(f"tls: expected a mapping of certificate and key, got {quoted(value)}")
    _check_keys(value, _TLS_KEYS, "tls.")
    paths: dict[str, Path | None] = {}
    for key in ("certificate", "key", "client_ca"):
        if value.get(key) is None:
            if key != "client_ca":
                raise ValueError(f"tls.{key}: missing, a file in PEM format")
            paths[key] = None
            continue
        try:
            paths[key] = PATH.parse(value[key])
        except ValueError as error:
            raise ValueError(f"tls.{key}: {error}") from None
    # Whoever names an authority wants certificates checked, and those who have none turned away.
    default = "required" if paths["client_ca"] else NONE
    demand = _choice(value, "client_certificate", CERTIFICATE_DEMANDS, "tls.", default)
    if demand != NONE and paths["client_ca"] is None:
        raise ValueError(f"tls.client_certificate: {demand} needs client_ca")
    if demand == NONE and paths["client_ca"] is not None:
        raise ValueError("tls.client_ca: it has no effect with client_certificate: none")
    if authentication == BY_CERTIFICATE and demand != "required":
        raise ValueError("authentication: tls needs tls.client_ca, and every client a certificate")
    return TlsConfig(
        **paths,  # type: ignore[arg-type]  # two of them are never None
        client_certificate=demand,
        versions=_choice(value, "versions", TLS_VERSIONS, "tls."),
        ciphers=_choice(value, "ciphers", CIPHER_PROFILES, "tls."),
        principal=_choice(value, "principal", PRINCIPAL_RULES, "tls."),
    )


def _check_keys(value: Mapping[Any, object], known: tuple[str, ...], prefix: str) -> None:
    for key in value:
        if key not in known:
            raise ValueError(f"unknown key {quoted(f'{prefix}{key}')}: expected {', '.join(known)}")


def _choice(
    value: Mapping[Any, object],
    key: str,
    words: tuple[str, ...],
    prefix: str = "",
    default: str = "",
) -> str:
    found = value.get(key, default or words[0])
    if isinstance(found, float):  # YAML's 1.2
        found = str(found)
    if found not in words:
        expected = ", ".join(words[:-1]) + f" or {words[-1]}"
        raise ValueError(f"{prefix}{key}: expected {expected}, got {quoted(found)}")
    return str(found)


def _parse_listeners(value: object) -> tuple[ListenerConfig, ...]:
    if isinstance(value, list):
        if not value:
            raise ValueError(f"expected at least one endpoint such as {ENDPOINT_EXAMPLE}, got []")
        return tuple(_parse_listener(item, place) for place, item in enumerate(value))
    return (_parse_listener(value),)


def as_given(listener: ListenerConfig) -> str | dict[str, Any]:
    """What broker.yaml would say: the endpoint alone, or a mapping of what isn't the default."""
    values = _given(listener)
    if listener.name.isdigit():
        del values["name"]
    if listener.tls is not None:
        values["tls"] = _given(listener.tls)
    return values if len(values) > 1 else listener.endpoint


def _given(value: Any) -> dict[str, Any]:
    given = {each.name: getattr(value, each.name) for each in fields(value)}
    defaults = {each.name: each.default for each in fields(value) if each.name != "name"}
    return {
        key: str(found) if isinstance(found, Path) else found
        for key, found in given.items()
        if key not in defaults or found != defaults[key]
    }


def _show(listener: ListenerConfig) -> str:
    given = as_given(listener)
    return given if isinstance(given, str) else _flow(given)


def _flow(values: Mapping[str, Any]) -> str:
    shown = (
        f"{key}: {_flow(each) if isinstance(each, Mapping) else _word(each)}"
        for key, each in values.items()
    )
    return "{" + ", ".join(shown) + "}"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


LISTENER = Kind("endpoint, or a mapping with one", _parse_listener, _show)
LISTENERS = Kind(
    "endpoint, or a mapping with one, or a list of them",
    _parse_listeners,
    lambda value: ", ".join(map(_show, value)),
)
