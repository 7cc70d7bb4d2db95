"""Who a broker is as a client: read, shown, made into what clients take."""

from pathlib import Path

import pytest

from hermes.config.connect_as import CONNECT_AS, ConnectAs
from hermes.config.loading import load_broker_config, parse_broker_config
from hermes.errors import ConfigError
from hermes.security import ClientSecurity

REQUIRED = {"broker_id": 0, "log_dir": "/data"}


def test_the_password_is_read_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(
        "broker_id: 0\nlog_dir: data\n"
        "connect_as: {user: broker-1, password_file: password, tls_ca: ca.pem}\n"
    )
    (found,) = [load_broker_config(tmp_path / "broker.yaml").connect_as]
    assert found is not None
    with pytest.raises(ConfigError, match=r"^connect_as\.password_file: .*/password"):
        found.security()
    with pytest.raises(ConfigError, match=r"^replicate_as\.password_file: "):
        found.security("replicate_as")
    (tmp_path / "password").write_text("fathom-lantern\n")
    security = found.security()
    assert security == ClientSecurity(
        user="broker-1", password="fathom-lantern", tls_ca=str(tmp_path / "ca.pem")
    )
    assert "fathom" not in f"{found!r} {found} {security!r}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("broker-1", "expected a mapping of user, password_file"),
        ({}, "expected some of user"),
        ({"user": "a"}, "give user and password_file together"),
        ({"password_file": "p"}, "give user and password_file together"),
        ({"user": "a", "password": "secret"}, "unknown key 'password'"),
        ({"user": "hermes-internal", "password_file": "p"}, "user: .*is reserved"),
        ({"user": 7, "password_file": "p"}, "user: expected a user's name, got 7"),
        ({"tls": "yes"}, "tls: expected true or false"),
        ({"tls_key": "key.pem"}, "tls_certificate: is missing"),
        ({"tls": False, "tls_ca": "ca.pem"}, "tls_ca: is of no use"),
        ({"tls_ca": ""}, "tls_ca: expected a path"),
    ],
)
def test_what_has_no_meaning_is_refused(value: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^connect_as: {expected}"):
        parse_broker_config({**REQUIRED, "connect_as": value}, "")


def test_it_is_shown_as_it_was_given() -> None:
    given = {"user": "b", "password_file": "/p", "tls": True}
    found = CONNECT_AS.parse(given)
    assert CONNECT_AS.show(found) == "{user: b, password_file: /p, tls: true}"
    assert found == ConnectAs(user="b", password_file=Path("/p"), tls=True)
