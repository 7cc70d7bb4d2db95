"""The name, the subject, under which the schemas of a topic's values are registered.

    topic           <topic>-value             one kind of record per topic; the default
    record          <record's full name>      a record has one history, wherever it is sent
    topic-record    <topic>-<record's name>   several kinds of records per topic

The names are those of Confluent's strategies. Messages of Kafka 0.7 have no key, so there is no
`<topic>-key`.
"""

from collections.abc import Callable, Mapping
from typing import Final

#: From a topic and a record's full name to a subject.
STRATEGIES: Final[Mapping[str, Callable[[str, str], str]]] = {
    "topic": lambda topic, record: f"{topic}-value",
    "record": lambda topic, record: record,
    "topic-record": lambda topic, record: f"{topic}-{record}",
}


def subject_of(strategy: str, topic: str, record: str | None) -> str:
    """Name the subject for a topic's values.

    Args:
        strategy: one of `STRATEGIES`.
        record: the full name of the schema's type; None if the schema has none.

    Raises:
        ValueError: there is no such strategy, or it needs a record's name.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"expected one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if strategy != "topic" and not record:
        raise ValueError(f"the strategy {strategy!r} needs a schema with a name, such as a record")
    return STRATEGIES[strategy](topic, record or "")
