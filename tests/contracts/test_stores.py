"""What loads rely on, on every store: a directory, a real S3 server, the tests' own in memory."""

from collections.abc import Iterator

import pytest
from memory_store import MemoryStore
from s3_server import S3Server
from store_checks import CHECKS

from hermes.spark.stores import FileStore, LocalStore, open_store


@pytest.fixture(scope="module")
def s3(tmp_path_factory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["local", "memory", "s3"])
def store(request, tmp_path) -> FileStore:
    if request.param == "local":
        return LocalStore(tmp_path / "a target")
    if request.param == "memory":
        return MemoryStore()
    server = request.getfixturevalue("s3")
    return open_store(server.address_of(f"some dir/{tmp_path.name}"), storage=server.storage)


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
def test_what_loads_rely_on(store, check) -> None:
    check(store)
