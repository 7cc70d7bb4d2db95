"""What listens at an address where ZooKeeper should: asked once, when it hangs up on a client."""

import socket
import struct
from typing import Final

from hermes.protocol import LATEST, OffsetsRequest
from hermes.protocol.protocol_detection import (
    KAFKA_PROBE,
    Spoken,
    is_kafka_answer,
    not_coordination,
)

_SIZE: Final = struct.Struct(">i")
# What brokers of Hermes and of Kafka 0.7 answer, whatever they hold: a code, and a count.
_BROKER_PROBE: Final = OffsetsRequest("hermes-probe", 0, LATEST, 0).encode()
_BROKER_ANSWER: Final = _SIZE.pack(6)


def what_answers(address: tuple[str, int], seconds: float) -> str | None:
    """Find out who it is, without TLS, and say what to do about it; None if it is nobody known.

    `seconds` is how long each of the questions may take.
    """
    for probe in (_BROKER_PROBE, KAFKA_PROBE):
        answer = _answer(address, probe, seconds)
        if probe is _BROKER_PROBE and answer[:4] == _BROKER_ANSWER:
            return not_coordination(Spoken.BROKER)
        if probe is KAFKA_PROBE and is_kafka_answer(answer[4:]):
            return not_coordination(Spoken.KAFKA)
        known = not_coordination(answer) if answer else None
        if known is not None:
            return known
    return None


def _answer(address: tuple[str, int], probe: bytes, seconds: float) -> bytes:
    """The first bytes of an answer; fewer than eight if there are no more."""
    received = b""
    try:
        with socket.create_connection(address, seconds) as connection:
            connection.sendall(probe)
            while len(received) < 8 and (more := connection.recv(8 - len(received))):
                received += more
    except OSError:
        pass  # what came before says enough, or nothing does
    return received
