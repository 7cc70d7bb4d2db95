"""A real Kafka refuses by the same codes, and permits by the ACLs that access rules come to."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conformance_security import GUARDED_SETTINGS
from kafka_4 import KafkaProcess
from kafka_attempts import ATTEMPTS, BEFORE, Names, Need, codes_of, rule_of
from kafka_raw import ANY_ACL
from planted_secrets import planted
from registry_cluster import until

from hermes.client.kafka_asking import KafkaAsker
from hermes.config.loading import parse_broker_config
from hermes.protocol.kafka_errors import Code
from hermes.security import ClientSecurity
from hermes.security.acls import acls_of

_REFUSALS = {
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

#: Where Kafka wants DESCRIBE_CONFIGS or ALTER_CONFIGS of the cluster; here `admin` is all of them.
_WANTS_MORE = {
    "a broker's settings",
    "alter a broker's throttle",
    "quotas",
    "alter quotas",
}


class Stand:
    """A Kafka with something of everything; alice has no ACL until she is given some."""

    def __init__(self, kafka: KafkaProcess, password: str) -> None:
        self._root = KafkaAsker("127.0.0.1", kafka.port)
        self._sasl = kafka.sasl_address.split(":")
        self._security = ClientSecurity(user="alice", password=password)
        self.names = Names(broker="1")
        made = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
        self._root.ask("CreateTopics", 7, topics=[made], timeout=10_000)
        until(self._has_begun, "a coordinator")
        for each in BEFORE:
            self._ask(self._root, each)

    def _has_begun(self) -> bool:
        for each in ("a group's coordinator", "a transaction's coordinator"):
            if codes_of(self._ask(self._root, each)) != {Code.NONE}:
                return False
        begun = self._ask(self._root, "a producer id for transactions")
        self.names = self.names._replace(producer_id=begun.producer_id)
        return codes_of(begun) == {Code.NONE}

    def _ask(self, asker: KafkaAsker, what: str) -> Any:
        attempt = ATTEMPTS[what]
        return asker.ask(attempt.api, attempt.version, **attempt.values(self.names))

    def codes(self, what: str, needs: Sequence[Need]) -> set[int]:
        """What alice is answered who may just this."""
        rules = [rule_of(each, self.names, "alice") for each in needs]
        given = parse_broker_config({"broker_id": 0, "log_dir": "/x", "access": rules})
        acls = [acl for rule in given.access or () for acl in acls_of(rule)]
        self._root.ask("DeleteAcls", 3, filters=[ANY_ACL])
        keys = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host")
        keys += ("operation", "permission_type")
        made = [dict(zip(keys, each, strict=True)) for each in acls]
        self._root.ask("CreateAcls", 3, creations=made)
        until(lambda: self._acl_count() == len(acls), "what alice may")
        host, port = self._sasl
        with KafkaAsker(host, int(port), security=self._security) as alice:
            return codes_of(self._ask(alice, what))

    def _acl_count(self) -> int:
        found = self._root.ask("DescribeAcls", 3, **ANY_ACL)
        return sum(len(each.acls) for each in found.resources)

    def close(self) -> None:
        self._root.close()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    password = planted("alice")
    kafka = KafkaProcess(tmp_path, GUARDED_SETTINGS, users={"alice": password})
    kafka.start()
    try:
        made = Stand(kafka, password)
        yield made
        made.close()
    finally:
        kafka.kill()


@pytest.mark.soak
def test_kafka_refuses_by_the_same_codes(stand: Stand) -> None:
    for what, attempt in ATTEMPTS.items():
        needs = attempt.needs
        if needs:
            assert stand.codes(what, ()) == {needs[0].code}, what
        for lacking in needs if len(needs) > 1 else ():
            others = [each for each in needs if each is not lacking]
            assert stand.codes(what, others) == {lacking.code}, (what, lacking)


@pytest.mark.soak
def test_kafka_permits_by_the_acls_of_the_rules(stand: Stand) -> None:
    refused = {
        what
        for what, attempt in ATTEMPTS.items()
        if attempt.needs and stand.codes(what, attempt.needs) & _REFUSALS
    }
    assert refused == _WANTS_MORE
