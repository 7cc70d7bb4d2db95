"""The codec against bytes that were written down by hand, and against damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.coordination.embedded.jute import JuteReader, encode_buffer, encode_string
from hermes.coordination.embedded.jute_records import OPEN_ACL, Acl, AclIdentity, EventType, Stat
from hermes.coordination.embedded.receiver import MAX_FRAME_BYTES, ClientReceiver, Word
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import (
    AuthRequest,
    CheckRequest,
    CloseRequest,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetAclRequest,
    GetChildrenRequest,
    GetDataRequest,
    MultiRequest,
    OpCode,
    PingRequest,
    SetAclRequest,
    SetDataRequest,
    SetWatchesRequest,
    SyncRequest,
    decode_request,
)
from hermes.coordination.embedded.zookeeper_responses import (
    encode_connect_response,
    encode_event,
    encode_failed_results,
    encode_response,
    encode_results,
)
from hermes.errors import RemoteProtocolError

ROOT_PATH = "00000002 2f61"  # "/a"
OPEN = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"

REQUESTS = [
    (1, f"{ROOT_PATH} 00000001 78 {OPEN} 00000003", CreateRequest("/a", b"x", OPEN_ACL, 3)),
    (1, f"{ROOT_PATH} ffffffff ffffffff 00000000", CreateRequest("/a", None, (), 0)),
    (15, f"{ROOT_PATH} 00000000 {OPEN} 00000000", CreateRequest("/a", b"", OPEN_ACL, 0, True)),
    (2, f"{ROOT_PATH} ffffffff", DeleteRequest("/a", -1)),
    (3, f"{ROOT_PATH} 01", ExistsRequest("/a", True)),
    (4, f"{ROOT_PATH} 00", GetDataRequest("/a", False)),
    (5, f"{ROOT_PATH} 00000001 78 00000007", SetDataRequest("/a", b"x", 7)),
    (6, f"{ROOT_PATH}", GetAclRequest("/a")),
    (7, f"{ROOT_PATH} {OPEN} 00000002", SetAclRequest("/a", OPEN_ACL, 2)),
    (8, f"{ROOT_PATH} 01", GetChildrenRequest("/a", True, False)),
    (12, f"{ROOT_PATH} 00", GetChildrenRequest("/a", False, True)),
    (9, f"{ROOT_PATH}", SyncRequest("/a")),
    (9, "ffffffff", SyncRequest("")),
    (11, "", PingRequest()),
    (-11, "", CloseRequest()),
    (100, "00000000 00000006 646967657374 00000003 753a70", AuthRequest("digest", b"u:p")),
    (
        101,
        f"0000000000000009 00000001 {ROOT_PATH} 00000000 00000002 {ROOT_PATH} {ROOT_PATH}",
        SetWatchesRequest(9, ("/a",), (), ("/a", "/a")),
    ),
    (
        14,
        f"00000002 00 ffffffff {ROOT_PATH} 00000001 0000000d 00 ffffffff {ROOT_PATH} 00000002"
        " ffffffff 01 ffffffff",
        MultiRequest((DeleteRequest("/a", 1), CheckRequest("/a", 2))),
    ),
]


@pytest.mark.parametrize(("code", "body", "request_"), REQUESTS)
def test_requests_are_read(code: int, body: str, request_: object) -> None:
    assert decode_request(code, JuteReader(bytes.fromhex(body))) == request_


@pytest.mark.parametrize(("code", "body", "request_"), [each for each in REQUESTS if each[1]])
def test_a_request_cut_anywhere_is_refused(code: int, body: str, request_: object) -> None:
    whole = bytes.fromhex(body)
    for end in range(len(whole)):
        with pytest.raises(RequestRefusedError) as refusal:
            decode_request(code, JuteReader(whole[:end]))
        assert refusal.value.code is ZooKeeperCode.MARSHALLING_ERROR


@pytest.mark.parametrize("code", [0, 10, 13, 102, 9999])
def test_types_that_are_not_served(code: int) -> None:
    with pytest.raises(RequestRefusedError) as refusal:
        decode_request(code, JuteReader(b""))
    assert refusal.value.code is ZooKeeperCode.UNIMPLEMENTED


def test_a_transaction_of_what_cannot_be_in_one() -> None:
    body = bytes.fromhex(f"00000003 00 ffffffff {ROOT_PATH} 00 ffffffff 01 ffffffff")
    with pytest.raises(RequestRefusedError) as refusal:
        decode_request(14, JuteReader(body))
    assert refusal.value.code is ZooKeeperCode.MARSHALLING_ERROR


@given(code=st.sampled_from(sorted(OpCode)), body=st.binary(max_size=200))
def test_nonsense_is_refused_or_understood(code: int, body: bytes) -> None:
    error = ZooKeeperCode.OK
    try:
        decode_request(code, JuteReader(body))
    except RequestRefusedError as refusal:
        error = refusal.code
    assert error in {ZooKeeperCode.OK, ZooKeeperCode.MARSHALLING_ERROR, ZooKeeperCode.UNIMPLEMENTED}


@given(data=st.none() | st.binary(max_size=50), text=st.text(max_size=50))
def test_primitives_come_back(data: bytes | None, text: str) -> None:
    reader = JuteReader(encode_buffer(data) + encode_string(text))
    assert reader.buffer() == data
    assert reader.string() == text.encode("utf-8", "replace").decode()
    assert reader.remaining == 0


@given(permissions=st.integers(0, 31), scheme=st.text(max_size=9), name=st.text(max_size=9))
def test_acls_come_back(permissions: int, scheme: str, name: str) -> None:
    acl = Acl(permissions, AclIdentity(scheme, name))
    assert Acl.read(JuteReader(acl.encode())) == acl


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


def test_answers() -> None:
    assert encode_response(1, 2, 0, b"xy") == hexed(
        "00000012 00000001 0000000000000002 00000000 7879"
    )
    assert encode_response(1, 2, -101, b"xy") == hexed(
        "00000010 00000001 0000000000000002 ffffff9b"
    )
    assert encode_event(EventType.CHILDREN_CHANGED, "/a") == hexed(
        "0000001e ffffffff ffffffffffffffff 00000000 00000004 00000003 00000002 2f61"
    )


def test_connect_answers() -> None:
    given_ = encode_connect_response((5, b"pw"), 6000, with_read_only=False)
    assert given_ == hexed("00000016 00000000 00001770 0000000000000005 00000002 7077")
    assert encode_connect_response((5, b"pw"), 6000, with_read_only=True) == (
        hexed("00000017") + given_[4:] + b"\0"
    )
    expired = encode_connect_response(None, 6000, with_read_only=False)
    assert expired == hexed("00000024 00000000 00000000 0000000000000000 00000010" + "00" * 16)


def test_results_of_transactions() -> None:
    assert encode_results([(OpCode.CREATE, b"xy"), (OpCode.DELETE, b"")]) == hexed(
        "00000001 00 00000000 7879 00000002 00 00000000 ffffffff 01 ffffffff"
    )
    assert encode_failed_results(1, 3, ZooKeeperCode.NO_NODE) == hexed(
        "ffffffff 00 00000000 00000000 ffffffff 00 ffffff9b ffffff9b"
        " ffffffff 00 fffffffe fffffffe ffffffff 01 ffffffff"
    )


def test_a_stat() -> None:
    encoded = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11).encode()
    assert encoded == hexed(
        "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006"
        " 00000007 0000000000000008 00000009 0000000a 000000000000000b"
    )


CONNECT = hexed("0000002c 00000000 0000000000000007 00001770 0000000000000000 00000010") + bytes(16)
PING = hexed("00000008 fffffffe 0000000b")


def items(receiver: ClientReceiver) -> list[object]:
    found: list[object] = []
    while (item := receiver.next_item()) is not None:
        found.append(bytes(item) if isinstance(item, memoryview) else item)
        if isinstance(item, Word):
            break
    return found


@given(cuts=st.lists(st.integers(0, len(CONNECT + PING * 3)), max_size=8).map(sorted))
def test_any_chunking_gives_the_same_items(cuts: list[int]) -> None:
    stream = CONNECT + PING * 3
    receiver, found = ClientReceiver(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        receiver.receive_data(stream[start:stop])
        found += items(receiver)
    assert found == [ConnectRequest(7, 6000, 0, bytes(16), None), *[PING[4:]] * 3]


@pytest.mark.parametrize(("byte", "read_only"), [(b"\0", False), (b"\1", True)])
def test_newer_clients_say_whether_read_only_would_do(byte: bytes, read_only: bool) -> None:
    receiver = ClientReceiver()
    receiver.receive_data(hexed("0000002d") + CONNECT[4:] + byte)
    assert items(receiver) == [ConnectRequest(7, 6000, 0, bytes(16), read_only)]


def test_words_are_known_by_their_letters() -> None:
    receiver = ClientReceiver()
    for letter in (b"r", b"u", b"o"):
        receiver.receive_data(letter)
        assert receiver.next_item() is None
    receiver.receive_data(b"k\n")
    assert receiver.next_item() == Word("ruok")


@pytest.mark.parametrize("start", [b"what", b"ruoK", hexed("ffffffff"), hexed("00100000")])
def test_what_can_be_no_length(start: bytes) -> None:
    assert MAX_FRAME_BYTES == 0xFFFFF
    receiver = ClientReceiver()
    receiver.receive_data(start)
    with pytest.raises(RemoteProtocolError):
        receiver.next_item()
