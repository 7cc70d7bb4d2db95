"""The scene of a listener that wants users: what strangers are told, and who has said who it is."""

import json
import time
from base64 import urlsafe_b64encode as b64encode
from typing import Any

from conformance_steps import PATIENCE_SECONDS, Scene
from kafka_raw import KafkaConversation
from planted_secrets import planted

from hermes.security.scram import ScramClient

__all__ = ["PASSWORD", "SASL_DIFFERENCES", "USER", "authenticated", "shown", "told"]

USER = "alice"
PASSWORD = planted("the password of conformance")

#: As in `conformance`.
SASL_DIFFERENCES = {
    ("authenticated", "an unknown user"): "the existence of users isn't disclosed",
    (
        "authenticated",
        "another one after it",
    ): "after a wrong mechanism a client may choose another",
    ("shown", "no bearer"): "Kafka fails internally and closes the connection",
    ("authenticated", "chosen again"): "unauthenticated clients' mistakes end their connection",
    (
        "authenticated",
        "Metadata after the choice",
    ): "unauthenticated clients' mistakes end their connection",
}

_METADATA: dict[str, Any] = {
    "topics": (),
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


def authenticated(address: str) -> dict[str, Any]:
    """Play it; what was answered, by the steps' labels.

    Args:
        address: of a listener with SASL and without TLS, where `USER` has `PASSWORD`.
    """
    scene = Scene(address, "nothing")
    try:
        for step in (_strangers, _rightly, _wrong_ones):
            step(scene)
        return scene.answers
    finally:
        scene.client.close()


def told(address: str) -> dict[str, Any]:
    """Play the scene of a listener that takes PLAIN, too; as `authenticated`."""
    scene = Scene(address, "nothing")
    right = f"\0{USER}\0{PASSWORD}"
    try:
        for version in range(3):
            _renew(scene)
            _shake(scene, f"before PLAIN, v{version}", "PLAIN")
            _tell(scene, f"told by PLAIN, v{version}", right.encode(), version)
            scene.ask(f"Metadata after PLAIN, v{version}", "Metadata", 1, topics=())
        for label, message in {
            "the same identity": f"{USER}{right}",
            "another identity": f"root{right}",
            "a wrong password": f"\0{USER}\0wrong",
            "an unknown user": f"\0nobody\0{PASSWORD}",
            "no user": f"\0\0{PASSWORD}",
            "no password": f"\0{USER}\0",
            "two parts": f"{USER}\0{PASSWORD}",
            "four parts": f"{right}\0",
            "nothing": "",
        }.items():
            _renew(scene)
            _shake(scene, f"before {label}", "PLAIN")
            _tell(scene, label, message.encode())
            scene.ask(f"Metadata after {label}", "Metadata", 1, topics=())
        return scene.answers
    finally:
        scene.client.close()


def shown(address: str) -> dict[str, Any]:
    """Play the scene of a listener that takes OAUTHBEARER, of JWTs that nobody has signed."""
    scene = Scene(address, "nothing")
    try:
        _shake(scene, "before tokens", "SCRAM-SHA-256")
        for version in range(3):
            _renew(scene)
            _shake(scene, f"before a token, v{version}", "OAUTHBEARER")
            _show(scene, f"shown, v{version}", _bearer(_unsigned(USER)), version)
            scene.ask(f"Metadata after a token, v{version}", "Metadata", 1, topics=())
        for label, message in {
            "another's token": _bearer(_unsigned(USER), identity="root"),
            "its own name": _bearer(_unsigned(USER), identity=USER),
            "an extension": _bearer(_unsigned(USER), "\1ext=a"),
            "an expired token": _bearer(_unsigned(USER, life_seconds=-3600)),
            "no JWT": _bearer("abc"),
            "no bearer": b"n,,\1auth=Basic abc\1\1",
            "no token": b"n,,\1host=x\1\1",
            "nothing to show": b"",
        }.items():
            _renew(scene)
            _shake(scene, f"before {label}", "OAUTHBEARER")
            _show(scene, label, message)
            _show(scene, f"the end of {label}", b"\1")
        _again(scene)
        return scene.answers
    finally:
        scene.client.close()


def _again(scene: Scene) -> None:
    """Another token on the same connection, and what comes of a wrong one."""
    for label, token in {
        "another token": _unsigned(USER),
        "somebody else's": _unsigned("bob"),
        "one that has expired": _unsigned(USER, life_seconds=-3600),
    }.items():
        _renew(scene)
        _shake(scene, f"first before {label}", "OAUTHBEARER")
        _show(scene, f"shown before {label}", _bearer(_unsigned(USER)))
        again = {"mechanism": "OAUTHBEARER"}

        def is_taken(again: dict[str, str] = again) -> bool:
            """Kafka's wants a second between two of them."""
            return bool(scene.client.ask("SaslHandshake", 1, **again).error_code.value == 0)

        scene.wait_until(is_taken, "nobody may show another token")
        _show(scene, label, _bearer(token))
        scene.ask(f"Metadata after {label}", "Metadata", 1, topics=())


def _show(scene: Scene, label: str, message: bytes, version: int = 2) -> None:
    """Show it; of how long the connection is held by it, only whether it is."""
    _tell(scene, label, message, version)
    answer = scene.answers[label]
    if "session_lifetime" in answer:
        answer["session_lifetime"] = answer["session_lifetime"] > 0


def _bearer(token: str, more: str = "", identity: str = "") -> bytes:
    named = f"a={identity}" if identity else ""
    return f"n,{named},\1auth=Bearer {token}{more}\1\1".encode()


def _unsigned(subject: str, life_seconds: int = 3600) -> str:
    now = int(time.time())
    claims = {"sub": subject, "iat": now - 7200, "exp": now + life_seconds}
    parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
    return ".".join(b64encode(each).decode().rstrip("=") for each in parts) + "."


def _renew(scene: Scene) -> None:
    scene.client.close()
    scene.client = KafkaConversation(scene.address, PATIENCE_SECONDS)


def _shake(scene: Scene, label: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    return scene.ask(label, "SaslHandshake", 1, mechanism=mechanism)


def _tell(scene: Scene, label: str, message: bytes, version: int = 2) -> bytes:
    answer = scene.ask(label, "SaslAuthenticate", version, auth_bytes=message)
    return b"" if answer is None else bytes(answer.auth_bytes)


def _strangers(scene: Scene) -> None:
    """Who asks before it says who it is."""
    scene.ask("Metadata of a stranger", "Metadata", 12, **_METADATA)
    _tell(scene, "a message before a mechanism", b"n,,n=alice,r=abc")
    _renew(scene)
    _shake(scene, "an unknown mechanism", "NOBODY-KNOWS")
    _shake(scene, "another one after it")
    _renew(scene)
    _shake(scene, "chosen")
    _shake(scene, "chosen again")
    _renew(scene)
    _shake(scene, "chosen, and then")
    scene.ask("Metadata after the choice", "Metadata", 12, **_METADATA)


def _wrong_ones(scene: Scene) -> None:
    """Who proves nothing."""
    for label, message in {
        "no message": b"",
        "junk": b"\xff\xfe",
        "another": b"n,,r=a,n=b",
    }.items():
        _renew(scene)
        _shake(scene, f"before {label}")
        _tell(scene, label, message)
        _tell(scene, f"once more after {label}", message)
    _renew(scene)
    _shake(scene, "before an unknown user")
    _tell(scene, "an unknown user", ScramClient("nobody", PASSWORD).first())
    _renew(scene)
    _shake(scene, "before a wrong password")
    client = ScramClient(USER, "wrong")
    challenge = _tell(scene, "a first message", client.first())
    _tell(scene, "a wrong password", client.answer(challenge))
    _tell(scene, "once more after a wrong password", b"n,,n=alice,r=abc")


def _rightly(scene: Scene) -> None:
    """Who proves it, in each version and by each mechanism."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for version in range(3):
            named = f"{mechanism}, v{version}"
            _renew(scene)
            _shake(scene, f"before {named}", mechanism)
            client = ScramClient(USER, PASSWORD, mechanism)
            challenge = _tell(scene, f"challenged by {named}", client.first(), version)
            final = _tell(scene, f"proven by {named}", client.answer(challenge), version)
            client.verify(final)
            scene.ask(f"Metadata after {named}", "Metadata", 1, topics=())
    _shake(scene, "chosen once more")
    _tell(scene, "told once more", b"x")
    scene.ask("Metadata in the end", "Metadata", 1, topics=())
