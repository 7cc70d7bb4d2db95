"""Orders, by confluent-kafka, into the data centre that has Kafka.

    python produce.py KAFKA HERMES ORDERS PLACE

What an application adds for the audit are the lines with `audited` and `stamped`. PLACE is a file
with how many orders are sent for certain. Who is killed begins again there, and may send the next
ones twice: to the audit, and to everybody else, these are other messages.
"""

import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from hermes import ProducerConfig
from hermes.audit.clients import AuditedProducer

TOPIC = "orders"
AT_ONCE = 200


def send(kafka: str, hermes: str, orders: int, place: Path) -> None:
    """Send those that aren't sent yet."""
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    audited = AuditedProducer(ProducerConfig(zookeeper_connect=hermes), window_ms=1000)
    failures = []

    for first in range(int(place.read_text()) if place.exists() else 0, orders, AT_ONCE):
        for number in range(first, min(first + AT_ONCE, orders)):
            key, value = b"customer-%d" % (number % 100), b"order %d" % number
            stamped = audited.stamp(TOPIC, value, key)

            def settle(error, _, stamped=stamped):
                stamped.settle(error is None)
                failures.extend([error] if error else [])

            producer.produce(TOPIC, value, key, headers=[stamped.header], on_delivery=settle)
            producer.poll(0)
        producer.flush()
        if failures:
            sys.exit(f"orders were not sent: {failures[0]}")
        new = place.with_suffix(".new")
        new.write_text(str(min(first + AT_ONCE, orders)))
        new.replace(place)
        time.sleep(0.02)  # until the next ones come in
    audited.close()


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
