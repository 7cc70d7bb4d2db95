"""Messages that fail are handled again, later and later, and become dead letters at last.

    letters    a message that failed, as a payload: where it came from, why, how often
    messages   what the application gets
    ladder     the retry topics of a group, and their delays
    worker     what one thread does with messages
    consumer   the API for applications

docs/retries.md is the guide.
"""

from hermes.client.retrying.consumer import RetryingConsumer
from hermes.client.retrying.letters import Letter, parse_letter
from hermes.client.retrying.messages import RetryMessage

__all__ = ["Letter", "RetryMessage", "RetryingConsumer", "parse_letter"]
