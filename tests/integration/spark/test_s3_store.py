"""S3 as it fails: servers without conditions, wrong credentials, none at all."""

import traceback
from collections import Counter

import pytest
from careless_s3 import Refusal, careless_s3
from planted_secrets import leaks, planted
from s3_server import S3Server

from hermes.errors import LoadTargetError
from hermes.spark.load.load_target import LoadTarget, TargetSettings
from hermes.spark.stores import FileStore, open_store
from hermes.spark.stores import s3 as s3_stores


def test_a_store_without_conditional_puts_is_found_out() -> None:
    with careless_s3() as (url, objects):
        storage = {"fs.s3a.endpoint": url, "fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
        store = open_store("s3://b/target", storage=storage)
        with pytest.raises(LoadTargetError, match="s3://b/target: this store doesn't honour"):
            LoadTarget(store, TargetSettings()).create()
        assert objects == {}, "something was written"


def opened(url: str) -> FileStore:
    storage = {"fs.s3a.endpoint": url, "fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
    return open_store("s3://b/target", storage=storage)


def test_puts_that_met_others_are_tried_again() -> None:
    """AWS may refuse all of several at once, and says that one should try again."""
    met: Counter[str] = Counter()

    def refuse(path: str, is_there: bool) -> Refusal:
        met[path] += 1
        if met[path] <= 4:
            return 409, "ConditionalRequestConflict"
        return (412, "PreconditionFailed") if is_there else None

    with careless_s3(refuse) as (url, objects):
        store = opened(url)
        LoadTarget(store, TargetSettings()).create()
        assert "/b/target/_hermes/target.json" in objects
        assert not store.create("_hermes/target.json", b"another")
        assert store.create("_hermes/x", b"content")
        assert store.read("_hermes/x") == b"content"


def test_a_server_that_always_refuses_is_not_taken_for_one_that_has_it(monkeypatch) -> None:
    monkeypatch.setattr(s3_stores, "_PAUSES", (0.01, 0.01))
    with (
        careless_s3(lambda path, is_there: (409, "ConditionalRequestConflict")) as (url, _),
        pytest.raises(LoadTargetError, match="x: the server says ConditionalRequestConflict"),
    ):
        opened(url).create("x", b"content")

    def refuse(path: str, is_there: bool) -> Refusal:
        return (412, "PreconditionFailed") if is_there or "target.json" in path else None

    with (
        careless_s3(refuse) as (url, _),
        pytest.raises(LoadTargetError, match=r"says that this is there .* and that it isn't"),
    ):
        LoadTarget(opened(url), TargetSettings()).create()


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
