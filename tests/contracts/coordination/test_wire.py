"""The protocol's edges: limits, nonsense, and the four-letter words."""

import re
import struct
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from zookeeper_process import four_letter_word

#: A frame may have 1,048,575 bytes: header, path and version are among them.
LARGEST_FRAME = 0xFFFFF

MARSHALLING_ERROR = -5
UNIMPLEMENTED = -6


def test_the_largest_request(client: KazooClient) -> None:
    client.create("/a")
    largest = LARGEST_FRAME - 8 - 4 - len(client.chroot + "/a") - 4 - 4
    client.set("/a", b"x" * largest)
    data, stat = client.get("/a")
    assert len(data) == stat.dataLength == largest
    with pytest.raises(ConnectionLoss):
        client.set("/a", b"x" * (largest + 1))
    assert client.retry(client.get, "/a")[1].version == 1


@pytest.mark.parametrize("size", [-1, LARGEST_FRAME + 1, 0x7FFFFFFF])
def test_a_length_that_cannot_be_ends_the_connection(raw: Any, size: int) -> None:
    client = raw()
    client.connect()
    client.socket.sendall(struct.pack(">i", size))
    assert client.is_closed()


def test_a_first_frame_that_is_no_connect_request(raw: Any) -> None:
    client = raw()
    client.send(b"short")
    assert client.is_closed()


def test_a_request_of_an_unknown_type(raw: Any) -> None:
    client = raw()
    client.connect()
    assert client.call(5, 9999) == (5, UNIMPLEMENTED, b"")
    assert client.is_closed()


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 7, 8, 12, 14, 15])
def test_a_request_cut_short(raw: Any, code: int) -> None:
    client = raw()
    client.connect()
    assert client.call(5, code, b"\0\0\0\2/") == (5, MARSHALLING_ERROR, b"")
    assert client.call(-2, 11) == (-2, 0, b"")


def test_requests_in_one_piece_and_byte_by_byte(raw: Any) -> None:
    client = raw()
    client.connect()
    ping = struct.pack(">iii", 8, -2, 11)
    client.socket.sendall(ping * 3)
    assert [client.next() for _ in range(3)] == [(-2, 0, b"")] * 3
    for byte in ping:
        client.socket.sendall(bytes([byte]))
    assert client.next() == (-2, 0, b"")


def test_ruok(server: Any) -> None:
    assert four_letter_word(server.port, "ruok") == "imok"
    assert four_letter_word(server.port, "isro") == "rw"


def test_srvr_and_stat(server: Any, client: KazooClient) -> None:
    lines = dict(line.split(": ", 1) for line in four_letter_word(server.port, "srvr").splitlines())
    assert list(lines) == [
        "Zookeeper version",
        "Latency min/avg/max",
        "Received",
        "Sent",
        "Connections",
        "Outstanding",
        "Zxid",
        "Mode",
        "Node count",
    ]
    assert lines["Mode"] == "standalone"
    assert re.fullmatch(r"\d+/\d+\.\d+/\d+", lines["Latency min/avg/max"])
    assert int(lines["Zxid"], 16) > 0
    count = int(lines["Node count"])
    client.create("/a")
    text = four_letter_word(server.port, "stat")
    assert f"\nNode count: {count + 1}\n" in text
    own = "{}:{}".format(*client._connection._socket.getsockname())
    assert re.search(rf"^ /{own}\[1\]\(queued=\d+,recved=\d+,sent=\d+\)$", text, re.MULTILINE)


def test_mntr(server: Any, client: KazooClient) -> None:
    def values() -> dict[str, str]:
        text = four_letter_word(server.port, "mntr")
        return dict(line.split("\t", 1) for line in text.splitlines())

    before = values()
    client.create("/e", ephemeral=True)
    client.exists("/e", watch=print)
    after = values()
    for name in ("zk_znode_count", "zk_ephemerals_count", "zk_watch_count"):
        assert int(after[name]) == int(before[name]) + 1
    assert after["zk_server_state"] == "standalone"
    assert int(after["zk_approximate_data_size"]) > int(before["zk_approximate_data_size"])
    assert float(after["zk_avg_latency"]) >= 0
    assert {"zk_version", "zk_packets_received", "zk_num_alive_connections"} <= set(after)


def test_envi_and_conf(server: Any, client: KazooClient) -> None:
    assert client.server_version() >= (3, 5, 0)
    assert four_letter_word(server.port, "envi").startswith("Environment:\nzookeeper.version=")
    lines = dict(line.split("=", 1) for line in four_letter_word(server.port, "conf").splitlines())
    assert lines["clientPort"] == str(server.port)
    assert (lines["tickTime"], lines["serverId"]) == ("100", "0")
    assert (lines["minSessionTimeout"], lines["maxSessionTimeout"]) == ("200", "60000")


def test_words_that_nobody_knows(raw: Any) -> None:
    client = raw()
    client.socket.sendall(b"what")
    assert client.is_closed()
