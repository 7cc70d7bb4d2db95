"""Clients with tokens of an OpenID provider: confluent-kafka and Java, and what becomes of them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka_4 import java_command
from kafka_clients import Java
from oidc_issuer import AUDIENCE, Issuer, running_issuer
from scraping import scrape
from server_process import DEADLINE_SECONDS

from hermes.testing import RunningBroker, running_broker

SECURITY = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        running.claims = {"roles": ["writers"]}
        yield running


@pytest.fixture
def broker(issuer: Issuer) -> Iterator[RunningBroker]:
    settings = {
        "kafka_listen": {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "token"},
        "token_verifier_options": {
            "issuer": issuer.url,
            "audience": AUDIENCE,
            "groups_claim": "roles",
        },
        "access": [
            {"principal": "group:writers", "operations": ["all"]},
            {"principal": "anonymous", "operations": ["describe"]},
        ],
        "http_listen": "tcp:0:interface=127.0.0.1",
        "group_initial_rebalance_delay": "0s",
    }
    with running_broker(settings=settings) as running:
        yield running


def by_callback(issuer: Issuer) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        ends = time.time() + issuer.life_seconds
        return issuer.token("alice", exp=ends, **issuer.claims), ends

    return {"oauth_cb": token}


def by_oidc(issuer: Issuer) -> dict[str, Any]:
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "service",
        "sasl.oauthbearer.client.secret": "unused",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
    }


ACCEPTED = frozenset({"mechanism": "OAUTHBEARER", "result": "accepted"}.items())


def has_shown_another(broker: RunningBroker) -> bool:
    """Whether more tokens were taken than connections were made."""
    found = scrape(str(broker.http))
    accepted = found.samples.get(("hermes_authentications_total", ACCEPTED), 0)
    return accepted > found("hermes_connections_accepted_total")


@pytest.mark.parametrize("method", [by_callback, by_oidc])
def test_confluent_kafka(
    broker: RunningBroker, issuer: Issuer, method: Callable[[Issuer], dict[str, Any]]
) -> None:
    issuer.life_seconds = 5
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        **SECURITY,
        **method(issuer),
    }
    producer = Producer(settings)
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["clicks"])
        sent = received = 0
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (has_shown_another(broker) and received == sent > 0):
            assert time.monotonic() < deadline, (sent, received)
            producer.produce("clicks", b"a page")
            sent += 1
            assert producer.flush(DEADLINE_SECONDS) == 0
            message = consumer.poll(1)
            received += message is not None and message.error() is None
            while received < sent and (message := consumer.poll(0.5)) is not None:
                received += message.error() is None
    finally:
        consumer.close()


def test_a_token_for_somebody_else_is_told(broker: RunningBroker, issuer: Issuer) -> None:
    issuer.claims["aud"] = "another-cluster"
    told: list[KafkaError] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, **SECURITY, **by_callback(issuer)}
    producer = Producer({**settings, "log_level": 0, "error_cb": told.append})
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not any("another audience" in str(each) for each in told):
        assert time.monotonic() < deadline, told
        producer.poll(0.2)
    assert not producer.flush(0)


class JavaWithTokens(Java):
    """Java's client, which asks for tokens only where its command line allows it."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__()
        self._allowed = f"-D{ALLOWED}={issuer.url}/token"

    def command(self) -> list[str]:
        """See `Driven`."""
        program, *rest = java_command("KafkaDriver.java", heap="512m")
        return [program, self._allowed, *rest]


def test_java(broker: RunningBroker, issuer: Issuer) -> None:
    issuer.life_seconds = 5
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        **SECURITY,
        "sasl.login.callback.handler.class": handler,
        "sasl.jaas.config": f"{module} required clientId='service' clientSecret='unused';",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
    }
    java = JavaWithTokens(issuer)
    try:
        group = {"group.id": "g", "auto.offset.reset": "earliest"}
        java.ask(do="join", consumer="c", topics=["clicks"], settings={**settings, **group})
        records = [{"key": None, "value": None, "headers": []}]
        sent = received = 0
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (has_shown_another(broker) and received == sent > 0):
            assert time.monotonic() < deadline, (sent, received)
            if not sent:
                java.ask(do="produce", settings=settings, topic="clicks", records=records)
                sent += 1
            received += len(java.ask(do="poll", consumer="c", seconds=1)["records"])
        java.ask(do="close", consumer="c")
    finally:
        java.close()
