"""Who a query is: its options, and the password that comes from elsewhere."""

import pickle
from pathlib import Path

import pytest
from certificates import Certificates

from hermes.errors import ConfigError
from hermes.security import PLAIN, ClientSecurity
from hermes.spark.catalog import new_table_options
from hermes.spark.identity import NOBODY, ClientIdentity
from hermes.spark.options import SourceOptions
from hermes.spark.sink import producer_config
from hermes.spark.sink_options import SinkOptions

BROKER = {"hermes.bootstrap.servers": "broker:9092"}
READ = {**BROKER, "subscribe": "clicks"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HERMES_PASSWORD", "HERMES_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("of the file\n")
    return path


def identity(**options: str) -> ClientIdentity:
    return SourceOptions.parse({**READ, **options}, "batch").address.identity


def test_without_any_a_query_is_nobody() -> None:
    assert identity() == NOBODY
    assert NOBODY.security() == NOBODY.coordination() == PLAIN


def test_every_option_reaches_the_client(certificates: Certificates) -> None:
    mine = certificates.client("alice")
    found = identity(
        TLS="true",
        tlsca=str(certificates.ca),
        tlsCertificate=str(mine.certificate),
        tlsKey=str(mine.key),
        user="alice",
        password="s3cret",
    )
    expected = ClientSecurity(
        tls=True,
        tls_ca=str(certificates.ca),
        tls_certificate=str(mine.certificate),
        tls_key=str(mine.key),
        user="alice",
        password="s3cret",
    )
    assert found.security() == found.coordination() == expected
    assert "s3cret" not in repr(found)


def test_a_write_says_it_likewise(certificates: Certificates, password_file: Path) -> None:
    given = {
        **BROKER,
        "tlsCa": str(certificates.ca),
        "user": "alice",
        "passwordFile": str(password_file),
        "zookeeperTls": "false",
    }
    options = SinkOptions.parse(given, stream=False)
    config = producer_config(options, {0: ("broker", 9092)})
    expected = ClientSecurity(tls_ca=str(certificates.ca), user="alice", password="of the file")
    assert config.security == expected
    assert config.coordination_security == PLAIN
    assert options.address.identity.coordination() == PLAIN


def test_the_password_of_a_file_is_read_where_it_is_needed(password_file: Path) -> None:
    found = identity(user="alice", passwordFile=str(password_file))
    pickled = pickle.dumps(found)
    assert b"of the file" not in pickled
    password_file.write_text("another")
    assert pickle.loads(pickled).security().password == "another"
    password_file.unlink()
    with pytest.raises(ConfigError, match=r"passwordFile: .*password: No such file"):
        found.security()


def test_the_environment_has_it_otherwise(environment, password_file: Path) -> None:
    found = identity(user="alice")
    with pytest.raises(ConfigError, match="there is no password of user 'alice' here"):
        found.security()
    environment.setenv("HERMES_PASSWORD", "of the environment")
    assert found.security().password == "of the environment"
    environment.setenv("HERMES_PASSWORD_FILE", str(password_file))
    assert found.security().password == "of the file"
    assert identity(user="alice", password="given").security().password == "given"
    assert identity().security() == PLAIN


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"user": ""}, "user: expected a user's name"),
        ({"tlsCa": ""}, "tlsCa: expected the path of a file"),
        ({"tls": "yes"}, "tls: expected true or false"),
        ({"tls": "false", "tlsCa": "ca.pem"}, "tlsCa: is of no use with tls=False"),
        ({"tlsKey": "key.pem"}, "tlsCertificate: is missing"),
        ({"password": "s3cret"}, "user: is missing, of which the password is"),
        ({"passwordFile": "a"}, "user: is missing, of which the password is"),
        ({"user": "a", "password": "s3cret", "passwordFile": "b"}, "passwordFile: expected at mos"),
        ({"kafka.sasl.jaas.config": "s3cret"}, "use user and passwordFile"),
        ({"kafka.ssl.truststore.location": "a"}, "use tlsCa"),
    ],
)
def test_what_is_wrong_is_named_and_no_password_shown(given: dict[str, str], text: str) -> None:
    for parse in (
        lambda: SourceOptions.parse({**READ, **given}, "stream"),
        lambda: SinkOptions.parse({**BROKER, **given}, stream=False),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            parse()
        assert "s3cret" not in str(caught.value)


def test_a_file_that_cannot_be_used_is_found_out_before_connecting() -> None:
    with pytest.raises(ConfigError, match=r"tls_ca: 'nowhere\.pem' can't be read"):
        identity(tlsCa="nowhere.pem").security()


def test_a_table_does_not_keep_a_password() -> None:
    spark_s = {"owner": "me", "provider": "hermes"}
    options = {f"option.{name}": text for name, text in READ.items()}
    kept = new_table_options(
        {**spark_s, **options, "option.user": "me", "option.passwordfile": "/p"}
    )
    assert kept is not None
    assert (kept["user"], kept["passwordfile"]) == ("me", "/p")
    with pytest.raises(ConfigError, match="password: a table's options are stored") as caught:
        new_table_options({**spark_s, **options, "option.user": "me", "option.password": "s3cret"})
    assert "s3cret" not in str(caught.value)
