"""librdkafka's mock cluster in a process of its own: a broker in C that keeps little, in memory."""

import argparse
import json
import signal
from pathlib import Path


def main() -> None:
    """Serve until the process is stopped; writes its address into a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ready", type=Path, help="gets the address, as JSON")
    ready: Path = parser.parse_args().ready
    from confluent_kafka import Producer

    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
    (broker,) = owner.list_topics(timeout=30).brokers.values()
    partial = ready.with_suffix(".partial")
    partial.write_text(json.dumps([broker.host, broker.port]))
    partial.rename(ready)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pause()


if __name__ == "__main__":
    main()
