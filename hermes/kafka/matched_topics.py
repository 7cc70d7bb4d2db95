"""Which topics a regular expression finds, for members of consumer groups.

Each heartbeat of such a member asks, so what was found is remembered while topics and permissions
stay as they are. Members whose expressions find the same share one tuple, whatever its length.
"""

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.cluster.cluster_topics import ClusterTopics
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.regex import JavaPattern
from hermes.security import Operation
from hermes.server.clients import Client
from hermes.server.fairness import FairScheduler, cooperatively
from hermes.server.outcomes import settled
from hermes.server.refusals import Refusals

#: No client's expression is longer: what it takes to compile one grows with it.
LONGEST_REGEX: Final = 4096

#: So many answers are remembered.
_MOST_KNOWN: Final = 64

_Who = tuple[str, str, frozenset[str]]


class MatchedTopics:
    """Finds topics by regular expressions. Lives in the reactor's thread.

    `look_up`: calls a function in a worker thread, a few at a time, and returns its Deferred.
    """

    def __init__(
        self,
        topics: ClusterTopics,
        refusals: Refusals,
        scheduler: FairScheduler,
        look_up: "Callable[..., Deferred[Any]]",
    ) -> None:
        self._topics = topics
        self._refusals = refusals
        self._scheduler = scheduler
        self._look_up = look_up
        self._revision = topics.revision
        self._known: dict[_Who, tuple[object, tuple[str, ...]]] = {}

    async def find(self, regex: str, client: Client) -> tuple[str, ...]:
        """Find the topics that an expression (as Java has them) matches and that a client may see.

        Returns:
            Their names, sorted; the same object as before if nothing has changed.

        Raises:
            KafkaError: it is no valid expression, or takes too long.
        """
        topics, refusals = self._topics, self._refusals
        if self._revision != topics.revision:
            self._known.clear()
            self._revision = topics.revision
        who, stamp = (regex, client.principal, client.groups), refusals.stamp(client.principal)
        known = self._known.get(who)
        if known is not None and known[0] == stamp:
            return known[1]
        names, revision = topics.names(), topics.revision
        try:
            matched = await self._look_up(matching, regex, names)
        except ValueError as error:
            text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise KafkaError(Code.INVALID_REGULAR_EXPRESSION, text) from error
        found = tuple(matched)
        if refusals.is_on:
            permits = partial(refusals.permits_topic, client, Operation.DESCRIBE)
            permitted = await settled(cooperatively(self._scheduler, matched, permits))
            found = tuple(compress(matched, permitted))
        if revision != topics.revision or revision != self._revision:
            return found
        found = next((each for _, each in self._known.values() if each == found), found)
        self._known.pop(who, None)
        while len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[who] = stamp, found
        return found


def matching(regex: str, names: list[str]) -> list[str]:
    """The names that an expression matches. For a thread: each may take tens of milliseconds.

    Raises ValueError: it is no valid expression, or takes too long.
    """
    pattern = JavaPattern(regex)
    return [each for each in names if pattern.matches(each)]
