"""What brokers do while a disk fails, is slow, or has lost something; each found by a schedule."""

from errno import ENOSPC
from unittest.mock import patch

import requests
from stage import on_stage

from hermes.errors import StorageError
from hermes.protocol.records import Record, encode_batch
from hermes.storage.kafka_format import KAFKA
from hermes.storage.kafka_partition import KafkaPartition

BATCH = encode_batch([Record(0, 0, None, b"one")])


def test_a_topic_whose_settings_a_disk_refused_is_kafkas_after_a_loss_of_power() -> None:
    with on_stage() as stage:
        third = stage.brokers[3]

        def refuse(entries: object) -> None:
            raise StorageError("the disk refuses")

        third.run.directory.write_entries = refuse
        topic = stage.create("clicks", 3)
        number = topic.leaders.index(3)
        third.machine.kill()
        files = third.disk.files
        assert files.listdir(f"/data/logs/clicks-{number}") != []
        # Names reach a disk at any time, and what is in the files perhaps not.
        for path in ("/data", "/data/logs"):
            files.fsync_directory(path)
        third.disk.files = files.after_power_loss(None)
        assert third.disk.files.listdir(f"/data/logs/clicks-{number}") == []
        third.start()
        stage.wait(10)
        assert stage.ask(3, requests.produce, topic.id, number, BATCH).base_offset == 0
        assert third.run.directory.get("clicks", number).topic_id == topic.id


def test_a_partition_that_lost_its_topics_id_takes_it_once_the_disk_lets_it() -> None:
    with on_stage() as stage:
        topic = stage.create("clicks", 3)
        number, third = topic.leaders.index(3), stage.brokers[3]
        stage.ask(3, requests.produce, topic.id, number, BATCH, 1)
        third.machine.kill()
        third.disk.files.unlink(f"/data/logs/clicks-{number}/partition.metadata")
        third.start()
        with patch.object(KafkaPartition, "adopt", side_effect=OSError(ENOSPC, "full")):
            stage.wait(3)
        assert third.run.directory.get("clicks", number).has_provisional_id
        third.machine.kill()
        third.start()
        stage.wait(10)
        assert third.run.directory.get("clicks", number).topic_id == topic.id
        assert stage.ask(3, requests.produce, topic.id, number, BATCH).base_offset in (0, 1)


def test_a_reactor_makes_a_partition_while_a_slow_disk_deletes_records() -> None:
    with on_stage() as stage:
        topic = stage.create("clicks", 3)
        number, third = topic.leaders.index(3), stage.brokers[3]
        stage.ask(3, requests.produce, topic.id, number, BATCH)
        third.disk.slowness = 300.0
        stage.begin(lambda: stage.client.ask(3, requests.delete_records, "clicks", number, 1))
        directory, process = third.run.directory, third.machine.process
        for made in range(40):
            process.at(0, directory.create, "views", made, KAFKA, topic.id)
            stage.wait(0.02)
            assert directory.get("views", made) is not None
        stage.wait(5)
        assert directory.get("clicks", number).earliest == 1
