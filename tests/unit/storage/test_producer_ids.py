"""The file of producer ids: it never goes back, and is not guessed."""

from pathlib import Path

import pytest

from hermes.errors import StorageError
from hermes.storage import DataDirectory, LogSettings
from hermes.storage.files import FileLayer
from hermes.storage.producer_ids import PRODUCER_IDS_NAME, read_producer_ids, write_producer_ids


@pytest.fixture
def directory(tmp_path):
    opened = DataDirectory(tmp_path, lambda topic: LogSettings())
    opened.open(0)
    yield opened
    opened.close()


def test_each_block_follows_the_one_before_also_after_a_start(directory, tmp_path):
    assert directory.claim_producer_ids(1000) == 0
    assert directory.claim_producer_ids(1000) == 1000
    directory.close()
    again = DataDirectory(tmp_path, lambda topic: LogSettings())

    assert again.open(0).strange == ()
    assert again.claim_producer_ids(1000) == 2000
    again.close()
    assert (tmp_path / PRODUCER_IDS_NAME).read_bytes() == b"3000\n"


def test_what_is_taken_elsewhere_is_noted_here_too(directory):
    directory.claim_producer_ids(10)
    asked = []

    def elsewhere(count, at_least):
        asked.append((count, at_least))
        return 70

    assert directory.claim_producer_ids(10, elsewhere) == 70
    assert asked == [(10, 10)]
    assert directory.claim_producer_ids(10) == 80


@pytest.mark.parametrize("held", [b"", b"-1\n", b"7 8\n", b"\xff\n", b"9" * 19 + b"\n", b"9" * 40])
def test_anything_else_in_the_file_is_refused(directory, tmp_path, held):
    (tmp_path / PRODUCER_IDS_NAME).write_bytes(held)

    with pytest.raises(StorageError, match="holds no producer id; put back"):
        directory.claim_producer_ids(10)
    assert (tmp_path / PRODUCER_IDS_NAME).read_bytes() == held


def test_the_last_id_is_not_gone_beyond(tmp_path):
    files, end = FileLayer(), 2**63
    write_producer_ids(str(tmp_path), end - 1, files)

    assert read_producer_ids(str(tmp_path), files) == end - 1
    with pytest.raises(StorageError, match="no producer id is left"):
        write_producer_ids(str(tmp_path), end, files)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / PRODUCER_IDS_NAME).mkdir()

    with pytest.raises(StorageError, match=PRODUCER_IDS_NAME):
        read_producer_ids(str(tmp_path), FileLayer())
    assert Path(tmp_path, PRODUCER_IDS_NAME).is_dir()
