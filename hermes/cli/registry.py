"""`hermes registry`: the schema registry of a broker or a cluster, in a process of its own."""

import logging
import socket
from pathlib import Path
from typing import Any, Final

import click
from twisted.internet.defer import Deferred, maybeDeferred

from hermes.cli.listener_options import url_shown
from hermes.cli.options import BrokerOption, CommandConnection, broker_option, zookeeper_option
from hermes.cli.registered_cluster import start_session
from hermes.cli.security_options import security_options
from hermes.cli.site_options import SiteOptions, site_options
from hermes.cli.terminal import note
from hermes.errors import HermesError
from hermes.listening import Listener
from hermes.reactors import make_reactor
from hermes.registry.election import Leader, NodeElection, NoElection
from hermes.registry.home import FixedHome, HomeBroker, RecordedHome
from hermes.registry.monitoring import add_resources
from hermes.registry.topic_store import TopicStore
from hermes.registry.wiring import NAME, make_store, serve_registry, url_of
from hermes.security import ClientSecurity

_LISTEN: Final = "tcp:8081:interface=127.0.0.1"
_TIMEOUT_SECONDS: Final = 10.0


@click.command("registry", short_help="Serve a schema registry.")
@broker_option(required=False)
@zookeeper_option("Serve the registry of the cluster of this ZooKeeper.")
@site_options(_LISTEN, host_note=" Programs may use any.")
@click.option(
    "--advertised-host",
    metavar="NAME",
    help="How other registries reach this machine, if --listen is for all of its addresses.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where to keep a snapshot, with which a start is quick; only one process may use it.",
)
@security_options
def command(
    broker: BrokerOption | None,
    zookeeper: str | None,
    site: SiteOptions,
    advertised_host: str | None,
    state_dir: Path | None,
    security: ClientSecurity,
) -> None:
    r"""Serve schemas with their ids, in the shape of Confluent's registry, until Ctrl-C.

    \b
    hermes registry -b localhost:9092
    hermes registry -Z zoo1:2181,zoo2:2181/hermes --users-file users --listen \
      '{endpoint: tcp:8081, tls: {certificate: a.pem, key: a.key}, authentication: scram}'

    Schemas live in the topic hermes-schemas, with those of the brokers that serve /registry on
    their http_listen: several may run beside each other, and one of them gives out ids. With -b it
    is the registry of that broker, or of the cluster that the broker is registered in.
    """
    if broker is None and not zookeeper:
        raise click.UsageError("missing option '-b' / '--broker', or '-Z' / '--zookeeper'")
    site.check()
    logging.getLogger("hermes").setLevel(logging.INFO)
    reactor = make_reactor()
    listener = Listener(reactor, "--listen", site.listen)
    zookeeper = zookeeper or _coordination_of(broker, security)
    if zookeeper:
        _check_coordination(zookeeper, security)
    server = site.server(reactor)
    server.open([listener])
    url = url_of(server.addresses[0], lambda: advertised_host or _own_address(), site.listen)
    store = _make_store(broker, zookeeper, url, state_dir, security)
    served = serve_registry(server, reactor, store)
    server.root.fallback = served.resource
    add_resources(server, store, served.metrics)
    where = url.removesuffix(f"/{NAME}") or url_shown(server.addresses[0], site.listen)
    note(f"the schema registry of {zookeeper or broker} is at {where}")

    def stop() -> "Deferred[Any]":
        return served.close().addCallback(lambda _: server.stop())

    reactor.addSystemEventTrigger("before", "shutdown", lambda: maybeDeferred(stop))
    reactor.run()


def _coordination_of(broker: BrokerOption | None, security: ClientSecurity) -> str:
    assert broker is not None
    with broker.consumer(CommandConnection(security, _TIMEOUT_SECONDS)) as consumer:
        settings = {each.name: each.value for each in consumer.describe_settings()}
        return "" if settings["coordination"] == "none" else consumer.coordination()


def _check_coordination(zookeeper: str, security: ClientSecurity) -> None:
    """Refuse an address where nothing answers: at a start it is most likely a wrong one."""
    start_session(zookeeper, CommandConnection(security, _TIMEOUT_SECONDS)).stop()


def _make_store(
    broker: BrokerOption | None,
    zookeeper: str,
    url: str,
    state_dir: Path | None,
    security: ClientSecurity,
) -> TopicStore:
    if not zookeeper:
        assert broker is not None
        return make_store(FixedHome(HomeBroker(-1, *broker, security)), NoElection(), state_dir)
    election = NodeElection(lambda: zookeeper, Leader("", url), security=lambda: security)
    homes = RecordedHome(election.session, None, lambda: security)
    return make_store(homes, election, state_dir, lambda: security)


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise HermesError(
            f"--advertised-host is needed, as this machine's name has no address: {error}"
        ) from error
