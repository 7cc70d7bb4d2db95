"""Handshakes of SCRAM that are almost right, by thousands, against a broker that wants users.

They come from all addresses of the loopback network, as if from as many machines, and know the
names of users, but no password; some few do, and are served. Messages are changed, left out, sent
twice or in another order, cut off, mixed with other requests, or followed by nothing at all.
"""

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from fuzz_rounds import check_aftermath, log_bytes, open_sockets
from hermes_testkit import DEADLINE_SECONDS, BrokerProcess, RawClient, message, produce_acknowledged
from hostile_frames import BrokerFrames
from witness import broker_witness

from hermes.errors import HermesError
from hermes.interfaces import User
from hermes.protocol import AuthenticateRequest, decode_authenticate_response
from hermes.security.passwords import make_verifier
from hermes.security.scram import MECHANISMS, ScramClient
from hermes.security.users import Users
from hermes.security.users_file import change_users_file

__all__ = ["fuzz_handshakes", "log_in"]

# So many that hardly any is tried often enough to be slowed down.
_USERS: Final = 10_000
_PASSWORD: Final = "planted-password-of-everybody"
_STAYING: Final = 60
_MOST_GROWTH_MIB: Final = 24

_NAMES: Final = ["nobody", "", "a=2Cb", "=", "\0", "x" * 255, "x" * 1500, "\u2168", "\ud83d\ude00"]
_HELLO: Final = message(b"hello")


def log_in(client: RawClient, user: str, password: str, mechanism: str = MECHANISMS[0]) -> None:
    """Do it as one should."""
    scram = ScramClient(user, password, mechanism)
    challenge = _ask(client, mechanism, scram.first())
    scram.verify(_ask(client, mechanism, scram.answer(challenge)))


def _ask(client: RawClient, mechanism: str, text: bytes) -> bytes:
    answer = client.call(AuthenticateRequest(mechanism, text).encode())
    return decode_authenticate_response(answer[4:])


def fuzz_handshakes(
    start_broker: Callable[..., BrokerProcess], users_file: Path, count: int, seed: int
) -> dict[str, Any]:
    """Attack a new broker with so many handshakes; what was measured."""
    verifiers = tuple(make_verifier(_PASSWORD, each, 4096) for each in MECHANISMS)
    names = {f"user-{n}": User(f"user-{n}", verifiers) for n in range(_USERS)}
    names["witness"] = User("witness", verifiers)
    change_users_file(users_file, lambda users: Users(names, users.secret, {}), may_create=True)
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    broker = start_broker(listen=listener, users_file=str(users_file))
    attacker = _Attacker(broker.port, random.Random(seed))
    witness = broker_witness(
        broker.port, log_in=lambda client: log_in(client, "witness", _PASSWORD)
    )
    with closing(witness):
        assert witness.is_served_again(DEADLINE_SECONDS)
        sockets, logged = open_sockets(broker), log_bytes(broker)
        attacker.attack(max(1, count // 5))
        warm_mib = broker.memory_bytes() >> 20
        attacker.attack(count - attacker.ways.total())
        deadline = time.monotonic() + DEADLINE_SECONDS
        while open_sockets(broker) > sockets:  # it learns of the last closes in its own time
            assert time.monotonic() < deadline, "sockets leak"
            time.sleep(0.05)
        rss_mib, grown = broker.memory_bytes() >> 20, log_bytes(broker) - logged
        check_aftermath(broker, witness)
    assert rss_mib - warm_mib <= _MOST_GROWTH_MIB, f"{warm_mib} MiB grew to {rss_mib} MiB"
    assert grown < 100 * count + 10_000, f"{grown / count:.0f} bytes of log for each"
    assert _PASSWORD not in "".join(broker.lines)
    stored = {each.name for each in broker.log_dir.iterdir() if each.is_dir()}
    assert stored <= {"witness-0", "served-0"}, stored
    return {
        "seed": seed,
        "handshakes": attacker.ways.total(),
        "right": attacker.ways["right"],
        "served_meanwhile": witness.served,
        "slowest_ms": round(witness.slowest_ms),
        "rss_mib_warm": warm_mib,
        "rss_mib": rss_mib,
        "log_bytes_each": round(grown / count, 1),
    }


class _Attacker:
    """Makes handshakes; how many of each way is in `ways`."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.ways: Counter[str] = Counter()
        self._port = port
        self._chance = chance
        self._frames = BrokerFrames(chance)
        self._staying: list[RawClient] = []
        self._kinds: dict[str, Callable[[RawClient], None]] = {
            "right": self._right,
            "wrong": self._wrong,
            "changed first": self._changed_first,
            "changed last": self._changed_last,
            "disorder": self._disorder,
            "noise": self._noise,
            "at once": self._at_once,
            "other requests": self._other_requests,
            "cut": self._cut,
            "left": self._left,
            "nothing": lambda client: None,
        }

    def attack(self, count: int) -> None:
        """Make so many."""
        kinds = list(self._kinds)
        weights = [3, 5, 20, 20, 10, 12, 10, 10, 5, 4, 1]
        for kind in self._chance.choices(kinds, weights, k=count):
            self.ways[kind] += 1
            client = self._connect()
            with suppress(OSError):  # refused, as it should be
                self._kinds[kind](client)
            if kind == "nothing" or self._chance.random() < 0.02:
                self._staying.append(client)
            else:
                client.close()
            if len(self._staying) > _STAYING:
                self._staying.pop(0).close()
        while self._staying:
            self._staying.pop().close()

    def _connect(self) -> RawClient:
        numbers = (self._chance.randrange(1, 255) for _ in range(3))
        client = RawClient.__new__(RawClient)
        client.socket = socket.create_connection(
            ("127.0.0.1", self._port),
            DEADLINE_SECONDS,
            source_address=("127." + ".".join(map(str, numbers)), 0),
        )
        return client

    # -- ways -----------------------------------------------------------------------------------

    def _right(self, client: RawClient) -> None:
        log_in(client, self._user(), _PASSWORD, self._mechanism())
        answer = client.call(produce_acknowledged(("served", 0, _HELLO)))
        assert answer[4:6] == b"\0\0", answer

    def _wrong(self, client: RawClient) -> None:
        user = self._user() if self._chance.random() < 0.5 else f"no-{self._user()}"
        with suppress(HermesError):
            log_in(client, user, "wrong")
            raise AssertionError("a wrong password was taken")

    def _changed_first(self, client: RawClient) -> None:
        first = ScramClient(self._user(), "x").first()
        self._send(client, self._changed(first))
        self._listen(client)

    def _changed_last(self, client: RawClient) -> None:
        """With a proof that would be right but for the change."""
        mechanism = self._mechanism()
        scram = ScramClient(self._user(), _PASSWORD, mechanism)
        last = scram.answer(_ask(client, mechanism, scram.first()))
        # The last of its characters have bits that count for nothing.
        changed = self._changed(last[:-4]) + last[-4:]
        client.send(AuthenticateRequest(mechanism, changed[:2048]).encode())
        client.socket.settimeout(0.2)
        answer = client.answer()
        assert len(answer) < 6 or answer[4:6] != b"\0\0" or changed == last, changed

    def _disorder(self, client: RawClient) -> None:
        scram = ScramClient(self._user(), "x")
        first = scram.first()
        last = b"c=biws,r=%s,p=%s" % (first[-64:], b"A" * 43 + b"=")
        for each in self._chance.choice([(last,), (first, first), (first, last, first), (b"",)]):
            self._send(client, each)
        self._listen(client)

    def _noise(self, client: RawClient) -> None:
        for _ in range(self._chance.randrange(1, 4)):
            self._send(client, self._chance.randbytes(self._chance.choice([0, 1, 20, 2048])))
        self._listen(client)

    def _at_once(self, client: RawClient) -> None:
        first = ScramClient(self._user(), "x").first()
        frames = [
            AuthenticateRequest(MECHANISMS[0], first).encode(),
            AuthenticateRequest(MECHANISMS[0], b"c=biws,r=x,p=AAAA").encode(),
            produce_acknowledged(("stolen", 0, _HELLO)),
        ]
        client.send(b"".join(frames) * self._chance.randrange(1, 4))
        self._listen(client)

    def _other_requests(self, client: RawClient) -> None:
        for _ in range(self._chance.randrange(1, 20)):
            client.send(self._frames.frame())
        self._listen(client)

    def _cut(self, client: RawClient) -> None:
        data = AuthenticateRequest(MECHANISMS[0], b"n,,n=alice,r=" + b"x" * 1000).encode()
        if self._chance.random() < 0.3:
            data = struct.pack(">i", self._chance.choice([-1, 0, 5000, 2**31 - 1])) + data[4:]
        client.send(data[: self._chance.randrange(len(data))])

    def _left(self, client: RawClient) -> None:
        """With a proof on its way."""
        scram = ScramClient(self._user(), "wrong")
        challenge = _ask(client, MECHANISMS[0], scram.first())
        self._send(client, scram.answer(challenge))

    # -- parts ----------------------------------------------------------------------------------

    def _user(self) -> str:
        return f"user-{self._chance.randrange(_USERS)}"

    def _mechanism(self) -> str:
        return self._chance.choice(MECHANISMS)

    def _send(self, client: RawClient, text: bytes) -> None:
        mechanism = self._chance.choices([MECHANISMS[0], "PLAIN", ""], [97, 2, 1])[0]
        client.send(AuthenticateRequest(mechanism, text[:2048]).encode())

    def _listen(self, client: RawClient) -> None:
        client.socket.settimeout(0.005)
        while client.socket.recv(65536):
            pass

    def _changed(self, text: bytes) -> bytes:
        """The same but for something; never equal to it."""
        chance, data = self._chance, bytearray(text)
        at = chance.randrange(len(data))
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = chance.choice([b",", b"=", b"\0", b"\xff", b"m=1,", b"r=x,", b"n=a,"])
            case 3:
                name = chance.choice(_NAMES).encode(errors="surrogatepass")
                data = bytearray(b"n,,n=" + name + b",r=" + chance.randbytes(20).hex().encode())
            case 4:
                data *= 2
            case _:
                data[at : at + 1] = b""
        return bytes(data)
