"""From addresses to stores."""

from pathlib import Path

import pytest
from planted_secrets import MARK, planted

from hermes.errors import ConfigError, LoadError, LoadTargetError
from hermes.spark.stores import LocalStore, is_s3, open_store
from hermes.spark.stores.error_texts import error_text
from hermes.spark.stores.s3 import S3Store
from hermes.spark.stores.s3_settings import S3Settings

STORAGE = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": planted("opening")}


class NoSession:
    """Spark's session, as far as a store looks into it, without S3A."""

    class sparkContext:  # noqa: N801 - as Spark calls it
        class _jsc:  # noqa: N801
            @staticmethod
            def hadoopConfiguration():
                class Configuration:
                    @staticmethod
                    def getClassByNameOrNull(name: str) -> None:
                        return None

                return Configuration

        class _jvm:  # noqa: N801
            class org:  # noqa: N801
                class apache:  # noqa: N801
                    class hadoop:  # noqa: N801
                        class util:  # noqa: N801
                            class VersionInfo:
                                @staticmethod
                                def getVersion() -> str:
                                    return "3.5.0"


@pytest.mark.parametrize("address", ["/a/b", "file:///a/b", "file:/a/b", Path("/a/b")])
def test_directories(address) -> None:
    store = open_store(address)
    assert isinstance(store, LocalStore)
    assert (store.path, store.place("x"), store.url("x")) == (
        Path("/a/b"),
        Path("/a/b/x"),
        "file:///a/b/x",
    )


@pytest.mark.parametrize("address", ["s3://b/some dir/t", "s3a://b/some dir/t/", "S3://b/x"])
def test_addresses_of_s3_are_printed_as_given_and_sparks_is_s3a(address) -> None:
    if address.startswith("S3"):
        with pytest.raises(LoadTargetError, match="expected s3://BUCKET/PREFIX"):
            open_store(address, storage=STORAGE)
        return
    store = open_store(address, storage=STORAGE)
    assert isinstance(store, S3Store)
    assert store.place() == address.rstrip("/")
    assert store.place("x/y") == f"{address.rstrip('/')}/x/y"
    assert store.url("x/y") == "s3a://b/some dir/t/x/y"
    assert store.delta_table()[0] == "s3a://b/some dir/t"
    assert is_s3(address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("gs://b/x", "gs://b/x: expected a directory, s3:// or s3a://"),
        ("abfss://c@h/x", "abfss://h/x: expected a directory"),
        ("s3n://b/x", "how one of several loads wins on s3n: is not known here"),
        ("https://h/x", "https://h/x: expected"),
        ("s3://", "s3://: expected s3://BUCKET/PREFIX"),
        ("s3://b/../x", "expected s3://BUCKET/PREFIX"),
        ("s3://b/x?y", "expected s3://BUCKET/PREFIX"),
        (Path("s3://b/x"), "s3:/b/x: give an address as text"),
        ("hdfs://h:1/x", "hdfs://h:1/x: this needs Spark's session"),
    ],
)
def test_other_addresses_are_refused_by_name(address, says) -> None:
    with pytest.raises(LoadTargetError, match=says.replace("?", r"\?")):
        open_store(address)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs"])
def test_credentials_in_an_address_are_refused_and_not_shown(scheme) -> None:
    with pytest.raises(LoadTargetError) as told:
        open_store(f"{scheme}://key:{planted('address')}@b/x", storage={})
    assert MARK not in str(told.value)


def test_a_directory_has_no_settings_of_s3() -> None:
    with pytest.raises(ConfigError, match="only addresses of S3 have settings"):
        open_store("/a/b", storage=STORAGE)


def test_a_session_is_started_only_if_it_is_asked(monkeypatch) -> None:
    def start() -> None:
        raise AssertionError("it was started")

    open_store("/a/b", start)
    open_store("s3://b/x", start, STORAGE)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    open_store("s3://b/x", start)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AssertionError, match="it was started"):
        open_store("s3://b/x", start)


def test_what_spark_lacks_is_named_with_its_version() -> None:
    store = open_store("s3://b/x", storage=STORAGE)
    with pytest.raises(LoadError, match=r"--packages org\.apache\.hadoop:hadoop-aws:3\.5\.0"):
        store.spark_settings(NoSession)


def test_of_a_servers_answer_only_code_and_message_are_shown() -> None:
    answer = (
        "Error performing GET http://h/b - Server returned non-2xx status code: 403 Forbidden: "
        "<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>"
        f"<AWSAccessKeyId>{planted('key')}</AWSAccessKeyId></Error>"
    )
    assert error_text(answer) == "the server says SignatureDoesNotMatch: Check your key."
    assert error_text(
        "\x1b[31m\u21b3\x1b[0m Error performing GET x - status code: 500 Oops: a"
    ) == ("the server says 500 Oops")
    assert error_text("Invalid table version: 3\nDebug source") == "Invalid table version: 3"
    assert (
        error_text(
            "Generic S3 error: Error performing GET http://h/b - HTTP error: error sending request"
        )
        == "the server can't be reached"
    )


def test_what_the_environment_says_to_obstore_may_be_nonsense(monkeypatch) -> None:
    monkeypatch.setenv("AWS_IMDSV1_FALLBACK", "perhaps")
    with pytest.raises(LoadTargetError, match=r"^s3://bucket/x: .*perhaps"):
        S3Store("s3://bucket/x", S3Settings())
