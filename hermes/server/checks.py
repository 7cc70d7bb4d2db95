"""Configuration problems found before anything starts: at the start, and by a check.

Reads the machine (directories, plugins, what Twisted knows of endpoints) and changes nothing. What
needs the settings alone is refused when they are read, by `hermes.config`.
"""

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.endpoints import serverFromString

from hermes.config.broker import RULES, BrokerConfig
from hermes.config.endpoints import read_endpoint
from hermes.config.listeners import BY_TOKEN, ListenerConfig
from hermes.config.topic import untrimmed
from hermes.errors import ConfigError, InvalidTopicError, PluginError, StorageError
from hermes.extras import install_command, outdated_requirements
from hermes.interfaces import (
    AuthenticatorSettings,
    AuthorizerSettings,
    IAuthenticator,
    IAuthorizer,
    IRetentionPolicy,
    ITokenVerifier,
    TokenVerifierSettings,
)
from hermes.plugins import PluginMakers, find_plugin, load_plugin
from hermes.protocol import check_new_topic_name
from hermes.storage import FileLayer
from hermes.storage.owner import check_owner

if TYPE_CHECKING:
    from hermes.security.shared_users import SharedUsers


def check_startable(config: BrokerConfig) -> None:
    """Raise ConfigError, with the setting at fault, where no broker could start."""
    _check_topics(config)
    makers: PluginMakers = {}
    for topic in ("", *config.topics):
        retention_policy(config, topic, makers)
    authenticator(config)
    token_verifier(config)
    authorizer_of(config)
    _check_endpoint("coordination_listen", config.coordination_listen)
    for listener in config.listen:
        _check_endpoint("listen", listener)
    for listener in config.kafka_listen or ():
        _check_endpoint("kafka_listen", listener)
    if config.kafka_listen and find_spec("kio") is None:
        raise ConfigError("kafka_listen", f"it needs the package kio: {install_command('kafka')}")
    for text in outdated_requirements("kafka") if config.kafka_listen else ():
        raise ConfigError("kafka_listen", text)
    for listener in config.http_listen or ():
        _check_endpoint("http_listen", listener)
    _check_coordination_listen(config)
    _check_advertised(config)
    _check_directory("log_dir", config.log_dir)
    _check_modules(config)
    if config.ready_file is not None:
        check_ready_file(config.ready_file)


def check_ownership(config: BrokerConfig) -> None:
    """Raise ConfigError for a data directory that is another broker's, as opening it would."""
    path = os.fspath(config.log_dir)
    try:
        check_owner(path, config.broker_id, os.listdir(path), FileLayer())
    except StorageError as error:
        raise ConfigError("broker_id", str(error)) from error
    except OSError:
        return  # there is none yet, or the start says what is wrong with it


class CheckedCertificate(NamedTuple):
    """A listener's certificate that can be used.

    Attributes:
        where: the setting and the endpoint.
        end_seconds: when it ends, in seconds since 1970.
        missing_name: the advertised host, if the certificate isn't for it; else empty.
    """

    where: str
    end_seconds: float
    missing_name: str


def check_certificates(config: BrokerConfig) -> Iterator[CheckedCertificate]:
    """Load the certificates of all listeners, as opening their ports would.

    Raises ConfigError when a file is missing or can't be used.
    """
    for setting, listeners in config.listeners():
        for each in listeners:
            if each.tls is not None:
                from hermes.listening.tls import ServerTls  # OpenSSL, which few need

                tls = ServerTls(setting, each.tls, False, time.monotonic)
                host = _host_of(config, setting, each)
                missing = host if host and not tls.pair.is_for(host) else ""
                yield CheckedCertificate(f"{setting} {each}", tls.end_seconds, missing)


def wrong_name(checked: CheckedCertificate) -> str:
    """The text that clients will refuse a certificate."""
    return (
        f"its certificate is not for {checked.missing_name}, where clients connect to: they will "
        "refuse it; have one with that name (subjectAltName), or correct advertised"
    )


def _host_of(config: BrokerConfig, setting: str, listener: ListenerConfig) -> str:
    """The advertised host of a listener; empty if there is none."""
    host, _ = listener.advertised_place
    return host or (config.advertised_host if setting == "listen" else "") or ""


def check_ready_file(path: Path) -> None:
    if path.is_dir():
        raise ConfigError("ready_file", f"{path} is a directory; name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError("ready_file", f"can't write into the directory of {path}")


def retention_policy(config: BrokerConfig, topic: str, makers: PluginMakers) -> IRetentionPolicy:
    """Make the policy of a topic; "" for that of all others.

    `makers` caches plugins by name. Raises ConfigError: no such plugin, or wrong settings.
    """
    settings = config.topic(topic)
    if settings.is_only_compacted:
        settings = untrimmed(settings)
    try:
        make = makers.get(settings.retention_policy)
        if make is None:
            make = find_plugin("hermes.retention", settings.retention_policy, IRetentionPolicy)
            makers[settings.retention_policy] = make
        policy: IRetentionPolicy = make(settings.retention)
    except PluginError as error:
        prefix = f"topics.{topic}." if topic in config.topics else ""
        raise ConfigError(f"{prefix}retention_policy", str(error)) from error
    return policy


def authenticator(config: BrokerConfig) -> IAuthenticator | None:
    """Make the authenticator; None without users. Blocks; raises ConfigError."""
    if not config.knows_users:
        return None
    path = config.users_file
    settings = AuthenticatorSettings(
        None if path is None else str(path), config.authenticator_options
    )
    try:
        made: IAuthenticator = load_plugin(
            "hermes.authenticators", config.authenticator, IAuthenticator, settings
        )
    except PluginError as error:
        if isinstance(error.__cause__, ConfigError):  # it says which file, and what to do
            raise error.__cause__ from None
        raise ConfigError("authenticator", str(error)) from error
    return made


def token_verifier(config: BrokerConfig) -> ITokenVerifier | None:
    """Make what checks tokens; None where no listener takes any. Raises ConfigError."""
    if not any(each.authentication == BY_TOKEN for each in config.kafka_listen or ()):
        return None
    settings = TokenVerifierSettings(config.token_verifier_options)
    try:
        made: ITokenVerifier = load_plugin(
            "hermes.token_verifiers", config.token_verifier, ITokenVerifier, settings
        )
    except PluginError as error:
        if isinstance(error.__cause__, ConfigError):  # it says which option
            raise error.__cause__ from None
        raise ConfigError("token_verifier", str(error)) from error
    return made


def shared_users(config: BrokerConfig, own: IAuthenticator | None) -> "SharedUsers | None":
    """The users of a broker that may have the cluster's as well; None where it can't."""
    if not config.shares_users:
        return None
    from hermes.security.shared_users import SharedUsers  # few brokers have users
    from hermes.security.users_file import UsersFile

    return SharedUsers(own) if isinstance(own, UsersFile) else None


def authorizer_of(config: BrokerConfig) -> IAuthorizer | None:
    """Make the authorizer; None: whoever can connect may do everything.

    Raises ConfigError: no such plugin, or wrong options; the text names the plugin.
    """
    if config.access is None and config.authorizer == RULES:
        return None
    settings = AuthorizerSettings(config.rules, config.authorizer_options)
    try:
        authorizer: IAuthorizer = load_plugin(
            "hermes.authorizers", config.authorizer, IAuthorizer, settings
        )
    except PluginError as error:
        raise ConfigError("authorizer", str(error)) from error
    return authorizer


def _check_topics(config: BrokerConfig) -> None:
    """Refuse names under `topics` that could never be created."""
    for topic in config.topics:
        last = config.topic(topic).partitions - 1
        try:
            check_new_topic_name(topic, config.max_topic_name_length, len(f"-{last}"))
        except InvalidTopicError as error:
            raise ConfigError(f"topics.{topic}", str(error)) from error


def _check_endpoint(setting: str, listener: ListenerConfig) -> None:
    """Let Twisted read an endpoint string, without listening on it."""
    description = listener.endpoint
    try:
        serverFromString(None, description)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever the endpoint's parser, maybe a plugin's, raises
        text = f"{description!r} is not an endpoint that Twisted knows: {error}"
        raise ConfigError(setting, text) from error
    path = read_endpoint(description).path
    if path:
        folder = Path(path).absolute().parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(setting, f"{description!r}: can't write into the directory {folder}")


def _check_coordination_listen(config: BrokerConfig) -> None:
    """Its clients are given a host and a port."""
    endpoint = config.coordination_listen.endpoint
    if config.coordination == "embedded" and read_endpoint(endpoint).kind == "unix":
        text = f"{endpoint!r} is not a TCP port, and its clients need one"
        raise ConfigError("coordination_listen", text)


def _check_advertised(config: BrokerConfig) -> None:
    """Registering needs a TCP port: clients find a host and a port in ZooKeeper."""
    listens_on_tcp = any(read_endpoint(each.endpoint).kind != "unix" for each in config.listen)
    if config.coordination != "none" and not listens_on_tcp and config.advertised_port is None:
        raise ConfigError(
            "advertised_port",
            "needed, as the broker listens on no TCP port (or set coordination: none)",
        )


def _check_modules(config: BrokerConfig) -> None:
    """Refuse log levels for modules that don't exist: they would have no effect."""
    for name in config.log_levels:
        room, _, rest = name.partition(".")
        if room == "hermes" and rest and not _is_module(name):
            raise ConfigError("log_levels", f"Hermes has no module {name!r}")


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # what is before its last dot isn't a package
        return False


def _check_directory(setting: str, path: Path) -> None:
    """Refuse a path that is no usable directory and can't become one."""
    nearest = path.absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ConfigError(setting, f"{nearest} is not a directory")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(setting, f"the directory {nearest} can't be read and written")
