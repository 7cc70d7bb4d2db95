"""Messages that fail are handled again, later and later, and become dead letters at last.

    letters    a message that failed, as a payload: where it came from, why, how often
    letter_headers
               the same as a record of Kafka's format, with all of that in headers
    messages   what the application gets
    ladder     the retry topics of a group, and their delays
    worker     what one thread does with messages
    consumer   the API for applications
    record_retries
               the same ladder for loops around the consumers of other Kafka clients

docs/retries.md is the guide.
"""

from hermes.client.retrying.consumer import RetryingConsumer
from hermes.client.retrying.letter_headers import letter_of
from hermes.client.retrying.letters import Letter, parse_letter
from hermes.client.retrying.messages import RetryMessage
from hermes.client.retrying.record_retries import NextRecord, RecordAttempt, RecordRetries

__all__ = [
    "Letter",
    "NextRecord",
    "RecordAttempt",
    "RecordRetries",
    "RetryMessage",
    "RetryingConsumer",
    "letter_of",
    "parse_letter",
]
