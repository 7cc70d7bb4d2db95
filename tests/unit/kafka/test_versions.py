"""ApiVersions: which requests there are, told to clients of any age."""

from pathlib import Path

import pytest
from broker_bench import answers, log_lines
from kafka_bench import KafkaBench, encode_request, messages

from hermes.kafka.apis import APIS, Api
from hermes.kafka.versions import answer

GROUP = "0e 67726f75702e76657273696f6e"
TRANSACTION = "14 7472616e73616374696f6e2e76657273696f6e"


@pytest.mark.parametrize("version", range(5))
def test_each_version_tells_the_same(tmp_path: Path, version: int) -> None:
    bench = KafkaBench(tmp_path)
    software = {"client_software_name": "a-test", "client_software_version": "1.0"}
    answer = bench.ask("ApiVersions", version, **(software if version > 2 else {}))
    assert answer.error_code == 0
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
        0: (0, 13),  # as Kafka 4 does, for older clients
        **{key: (api.lowest, api.highest) for key, api in APIS.items() if key},
    }


@pytest.mark.parametrize(
    ("version", "tags"),
    [
        # two tags: epoch 0 of what is settled | group.version, highest and lowest 1, and
        # transaction.version, highest and lowest 2
        (3, f"02 0108 0000000000000000 022d 03 {GROUP} 0001 0001 00 {TRANSACTION} 0002 0002 00"),
        # and before them what could be: the same from 0 on
        (
            4,
            f"03 002d 03 {GROUP} 0000 0001 00 {TRANSACTION} 0000 0002 00"
            f"0108 0000000000000000 022d 03 {GROUP} 0001 0001 00 {TRANSACTION} 0002 0002 00",
        ),
    ],
)
def test_features_are_told(version: int, tags: str) -> None:
    answered = answer(version, bytes.fromhex("02 61 02 31 00"))
    assert answered.endswith(bytes(4) + bytes.fromhex(tags))


def test_an_unknown_version_is_answered_so_that_the_client_can_ask_again(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path)
    connection, transport = bench.connect_kafka()
    body = bytes.fromhex("0012 0063 00000007 0001 61 00 02 61 02 31 00")
    connection.dataReceived(len(body).to_bytes(4) + body)
    (answer,) = answers(transport)
    # correlation id | UNSUPPORTED_VERSION | one entry: ApiVersions, 0 to 4
    assert answer == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")
    assert not transport.disconnecting


@pytest.mark.parametrize("name", ["", "-a", "a b", "é"])
def test_software_has_a_name_that_can_be_counted_by(tmp_path: Path, name: str) -> None:
    bench = KafkaBench(tmp_path)
    answer = bench.ask("ApiVersions", 3, client_software_name=name, client_software_version="1.0")
    assert answer.error_code == 42
    assert answer.api_keys == ()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "00",
        "00ff",
        "00ffff",
        "00ffffffffff7f",
        "007f61",
        "0002610261",
        "0002 61 ff",
        "0002617f31",
    ],
)
def test_a_body_that_ends_early_closes_the_connection_as_kafka_does(
    tmp_path: Path, body: str
) -> None:
    bench = KafkaBench(tmp_path)
    connection, transport = bench.connect_kafka()
    request = bytes.fromhex("0012 0003 00000007 ffff" + body)
    with log_lines() as lines:
        connection.dataReceived(len(request).to_bytes(4) + request)
    assert transport.disconnecting
    assert answers(transport) == []
    assert len(lines) == 1
    assert "Traceback" not in lines[0]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_all_that_is_announced_is_known_to_kio(api: Api) -> None:
    for version in range(api.lowest, api.highest + 1):
        request = getattr(messages(api.name, version, "request"), f"{api.name}Request")
        assert request.__api_key__ == api.key


def test_requests_that_are_not_announced_close_the_connection(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path)
    for name, version in (("Vote", 0), ("Metadata", 13)):
        connection, transport = bench.connect_kafka()
        request = bytearray(
            encode_request(
                "Metadata",
                version,
                topics=None,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            if name == "Metadata"
            else bytes.fromhex("0000000a 0034 0000 00000007 ffff")
        )
        request[7] = 99  # the version's low byte
        connection.dataReceived(bytes(request))
        assert transport.disconnecting
        assert answers(transport) == []
