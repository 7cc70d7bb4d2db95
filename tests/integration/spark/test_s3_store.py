"""S3 as it fails: servers without conditions, wrong credentials, none at all."""

import traceback

import pytest
from careless_s3 import careless_s3
from planted_secrets import leaks, planted
from s3_server import S3Server

from hermes.errors import LoadTargetError
from hermes.spark.load.target import LoadTarget, TargetSettings
from hermes.spark.stores import open_store


def test_a_store_without_conditional_puts_is_found_out() -> None:
    with careless_s3() as (url, objects):
        storage = {"fs.s3a.endpoint": url, "fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
        store = open_store("s3://b/target", storage=storage)
        with pytest.raises(LoadTargetError, match="s3://b/target: this store doesn't honour"):
            LoadTarget(store, TargetSettings()).create()
        assert objects == {}, "something was written"


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("changed", "address", "says"),
    [
        ({"fs.s3a.secret.key": planted("wrong")}, "s3a://loads/x", "SignatureDoesNotMatch"),
        ({"fs.s3a.access.key": planted("nobody")}, "s3a://loads/x", "UserNotFound"),
        ({}, "s3://none/x", "s3://none/x: the server says NoSuchBucket"),
        ({"fs.s3a.endpoint": "http://127.0.0.1:1"}, "s3://loads/x", "the server can't be reached"),
    ],
)
def test_what_fails_is_said_in_a_line_without_secrets(s3, changed, address, says) -> None:
    store = open_store(address, storage={**s3.storage, **changed})
    steps = [
        lambda: store.read("x"),
        store.names,
        store.walk,
        lambda: store.prepare("a"),
        lambda: store.create("x", b""),
        lambda: store.delete("x"),
        lambda: store.move("x", "y"),
    ]
    for step in steps if "can't be reached" not in says else steps[:1]:
        with pytest.raises(LoadTargetError, match=says) as told:
            step()
        shown = "".join(traceback.format_exception(told.value))
        assert not leaks(shown)
        assert "\n" not in str(told.value)
