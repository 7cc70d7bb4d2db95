"""Kafka's console tools and kcat: what a person has at hand."""

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka_4 import run_tool
from kafka_clients import CODECS, Java, KafkaClient
from server_process import DEADLINE_SECONDS


@pytest.fixture
def tool(bootstrap: str, client_named: Callable[[str], KafkaClient]) -> Callable[..., str]:
    """Runs a console tool on the broker."""
    java = client_named("java")
    assert isinstance(java, Java)

    def run(name: str, *arguments: str, given: str = "") -> str:
        return java.tool(name, "--bootstrap-server", bootstrap, *arguments, given=given)

    return run


def kcat(bootstrap: str, *arguments: str, given: bytes = b"") -> bytes:
    ran = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_kcat_consumes_what_it_produced(bootstrap: str) -> None:
    lines = b"".join(b"key-%d:value %d\n" % (number, number) for number in range(100))

    def produce_and_consume(codec: str) -> list[str]:
        topic = f"kcat-{codec}"
        kcat(
            bootstrap, "-P", "-t", topic, "-z", codec, "-K:", "-H", "h=1", "-H", "i=ü", given=lines
        )
        return (
            kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%p %o %k:%s %h\\n")
            .decode()
            .splitlines()
        )

    expected = [f"0 {number} key-{number}:value {number} h=1,i=ü" for number in range(100)]
    with ThreadPoolExecutor() as pool:  # it waits a second before it ends
        assert list(pool.map(produce_and_consume, CODECS)) == len(CODECS) * [expected]


def test_kcat_lists_topics(bootstrap: str) -> None:
    kcat(bootstrap, "-P", "-t", "kcat-listed", given=b"x\n")
    listed = kcat(bootstrap, "-L").decode()
    assert 'topic "kcat-listed" with 1 partitions:' in listed
    assert "1 brokers:" in listed


def test_the_console_consumer_shows_what_the_console_producer_read(
    tool: Callable[..., str],
) -> None:
    reads = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    for codec in CODECS:
        given = f"h:1,ä:ö\tkey\tin {codec}\n" + "h:2\tkey\tanother\n"
        codecs = ("--compression-codec", codec)
        tool("kafka-console-producer", "--topic", "console", *codecs, *reads, given=given)
    shows = ("print.key", "print.headers", "print.offset", "print.partition")
    properties = [word for each in shows for word in ("--formatter-property", f"{each}=true")]
    count = ("--max-messages", str(2 * len(CODECS)))
    printed = tool(
        "kafka-console-consumer", "--topic", "console", "--from-beginning", *count, *properties
    )
    # In this JVM a console producer may end before its messages are sent: each pair in any order.
    firsts, seconds = printed.splitlines()[::2], printed.splitlines()[1::2]
    for number, line in enumerate(seconds):
        assert line == f"Partition:0\tOffset:{2 * number + 1}\th:2\tkey\tanother"
    for number, line in enumerate(firsts):
        assert line.startswith(f"Partition:0\tOffset:{2 * number}\th:1,ä:ö\tkey\tin ")
    assert sorted(line.rpartition(" ")[2] for line in firsts) == sorted(CODECS)


def test_topics_are_created_described_grown_and_deleted(tool: Callable[..., str]) -> None:
    tool("kafka-topics", "--create", "--topic", "made", "--partitions", "3")
    assert "made" in tool("kafka-topics", "--list").split()
    described = tool("kafka-topics", "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    tool("kafka-topics", "--alter", "--topic", "made", "--partitions", "5")
    assert "PartitionCount: 5" in tool("kafka-topics", "--describe", "--topic", "made")
    tool("kafka-topics", "--delete", "--topic", "made")
    assert "made" not in tool("kafka-topics", "--list").split()


def test_a_topics_settings_are_shown_and_altered(tool: Callable[..., str]) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "set")
    tool("kafka-topics", "--create", "--topic", "set", "--config", "retention.ms=3600000")
    assert "retention.ms=3600000" in tool("kafka-configs", *topic, "--describe")
    tool("kafka-configs", *topic, "--alter", "--add-config", "retention.ms=7200000")
    assert "retention.ms=7200000" in tool("kafka-configs", *topic, "--describe")
    tool("kafka-configs", *topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=" not in tool("kafka-configs", *topic, "--describe")


def test_offsets_are_told_and_records_deleted(
    bootstrap: str, tool: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kcat(bootstrap, "-P", "-t", "counted", given=b"x\n" * 10)
    assert "counted:0:10" in tool("kafka-get-offsets", "--topic", "counted")
    wanted = tmp_path_factory.mktemp("offsets") / "wanted.json"
    wanted.write_text('{"partitions": [{"topic": "counted", "partition": 0, "offset": 4}]}')
    tool("kafka-delete-records", "--offset-json-file", str(wanted))
    earliest = tool("kafka-get-offsets", "--topic", "counted", "--time", "earliest")
    assert "counted:0:4" in earliest
    left = kcat(bootstrap, "-C", "-t", "counted", "-e", "-q", "-o", "beginning", "-f", "%o ")
    assert left.split() == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_the_directories_of_logs_are_told(bootstrap: str, tool: Callable[..., str]) -> None:
    kcat(bootstrap, "-P", "-t", "placed", given=b"x\n")
    assert '"partition":"placed-0"' in tool(
        "kafka-log-dirs", "--describe", "--topic-list", "placed"
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_offsets_are_shown_reset_and_deleted(
    protocol: str, bootstrap: str, tool: Callable[..., str]
) -> None:
    topic = f"grouped-{protocol}"
    kcat(bootstrap, "-P", "-t", topic, given=b"x\n" * 10)
    tool(
        "kafka-console-consumer",
        *("--topic", topic, "--group", "readers", "--from-beginning", "--max-messages", "10"),
        *("--command-property", f"group.protocol={protocol}"),
    )
    types = " ".join(tool("kafka-consumer-groups", "--list", "--type").split())
    assert f"readers {protocol.title()}" in types
    assert "readers" in tool("kafka-consumer-groups", "--list").split()
    shown = tool("kafka-consumer-groups", "--describe", "--group", "readers")
    assert f"{topic} 0 10 10 0" in " ".join(shown.split())
    reset = ("--group", "readers", "--topic", topic, "--reset-offsets", "--to-offset", "3")
    tool("kafka-consumer-groups", *reset, "--execute")
    shown = tool("kafka-consumer-groups", "--describe", "--group", "readers")
    assert f"{topic} 0 3 10 7" in " ".join(shown.split())
    tool("kafka-consumer-groups", "--delete", "--group", "readers")
    assert "readers" not in tool("kafka-consumer-groups", "--list").split()


def test_the_verifiable_tools_agree(bootstrap: str) -> None:
    """These print from threads of their own, so that each needs a JVM."""
    topic = ("--bootstrap-server", bootstrap, "--topic", "verified", "--max-messages", "500")
    produced = run_tool("kafka-verifiable-producer", *topic)
    assert re.search(r'"sent": ?500\b.*"acked": ?500\b|"acked": ?500\b.*"sent": ?500\b', produced)
    group = ("--group-id", "verifiers", "--reset-policy", "earliest")
    consumed = run_tool("kafka-verifiable-consumer", *topic, *group)
    (committed,) = re.findall(r'"name":"offsets_committed".*', consumed)[-1:]
    assert re.search(r'"offset": ?500\b', committed)
