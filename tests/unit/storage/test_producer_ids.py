"""The file of producer ids: it never goes back, and is not guessed."""

from pathlib import Path

import pytest
from kafka_logs import record

from hermes.errors import StorageError
from hermes.protocol.record_batches import decode_header
from hermes.protocol.records import encode_batch
from hermes.storage import DataDirectory, LogSettings
from hermes.storage.files import FileLayer
from hermes.storage.kafka_format import KAFKA
from hermes.storage.producer_ids import (
    FIRST_PRODUCER_ID,
    PRODUCER_IDS_NAME,
    free_from,
    read_producer_ids,
    write_producer_ids,
)


@pytest.fixture
def directory(tmp_path):
    opened = DataDirectory(tmp_path, lambda topic: LogSettings())
    opened.open(0)
    yield opened
    opened.close()


def test_each_block_follows_the_one_before_also_after_a_start(directory, tmp_path):
    assert directory.claim_producer_ids(1000) == FIRST_PRODUCER_ID
    assert directory.claim_producer_ids(1000) == FIRST_PRODUCER_ID + 1000
    directory.close()
    again = DataDirectory(tmp_path, lambda topic: LogSettings())

    assert again.open(0).strange == ()
    assert again.claim_producer_ids(1000) == FIRST_PRODUCER_ID + 2000
    again.close()
    assert (tmp_path / PRODUCER_IDS_NAME).read_bytes() == b"%d\n" % (FIRST_PRODUCER_ID + 3000)


def test_what_is_taken_elsewhere_is_noted_here_too(directory, tmp_path):
    write_producer_ids(str(tmp_path), 10, FileLayer())
    asked = []

    def elsewhere(count, at_least):
        asked.append((count, at_least))
        return 70

    assert directory.claim_producer_ids(10, elsewhere) == 70
    assert asked == [(10, 10)]
    assert directory.claim_producer_ids(10) == 80


def test_none_is_below_those_of_a_kafka(directory):
    """Which needs a million producers a day for 3,000 years to get there."""
    assert directory.claim_producer_ids(10) >= 2**40


def test_no_id_is_given_out_that_a_log_knows(directory, tmp_path):
    """It may come from a backup of another cluster: a new producer would repeat an old one."""
    write_producer_ids(str(tmp_path), 100, FileLayer())
    log = directory.create("k", 0, KAFKA)
    for known in (105, 112, 7, 2**63 - 1):
        numbers = {"producer_id": known, "producer_epoch": 0, "base_sequence": 0}
        log.producers.note([decode_header(encode_batch([record(b"x")], **numbers))], 0)
    assert directory.claim_producer_ids(10) == 113
    taken = iter([109, 200])

    assert directory.claim_producer_ids(10, lambda count, at_least: next(taken)) == 200


@pytest.mark.parametrize(
    ("known", "first"), [((), 5), ((4, 8), 5), ((7,), 8), ((5, 7, 8, 10), 11), ((7, 11), 8)]
)
def test_so_many_in_a_row_are_free(known, first):
    assert free_from(5, 3, known) == first


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


def test_an_older_version_may_have_given_out_more(directory, tmp_path):
    directory.claim_producer_ids(1000)
    directory.close()
    (tmp_path / PRODUCER_IDS_NAME).write_bytes(b"%d\n" % (FIRST_PRODUCER_ID + 5000))

    again = DataDirectory(tmp_path, lambda topic: LogSettings())
    (told,) = again.open(0, broker_id=0).healed
    assert told.startswith(f"{PRODUCER_IDS_NAME}.copy, which said less than ")
    assert again.claim_producer_ids(1000) == FIRST_PRODUCER_ID + 5000
    again.close()


def test_a_number_that_went_back_is_mended(directory, tmp_path):
    directory.claim_producer_ids(5000)
    directory.close()
    (tmp_path / PRODUCER_IDS_NAME).write_bytes(b"%d\n" % FIRST_PRODUCER_ID)

    again = DataDirectory(tmp_path, lambda topic: LogSettings())
    (told,) = again.open(0, broker_id=0).healed
    assert told.startswith(f"{PRODUCER_IDS_NAME}, which was damaged: it says ")
    assert again.claim_producer_ids(1000) == FIRST_PRODUCER_ID + 5000
    again.close()
