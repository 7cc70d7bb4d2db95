"""Counts the messages of a cluster, each once, as a consumer group.

The members of the group share the partitions, and its offsets are how far each is counted, so that
a restart goes on where the last report ended. An offset is committed after the report that has it,
so a member that is killed in between counts the same again, which readers of the reports recognise.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Final

from hermes.audit.commits import CommitReporter, CountedLog
from hermes.audit.counting import DEFAULT_WINDOW_MS, OWN_TOPICS, TierCounter
from hermes.audit.log_counting import CountingClaim, CountingFetcher
from hermes.audit.publishing import Outbox, SendsEvents
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.membership import GroupMember
from hermes.client.groups.streams import MessageStream
from hermes.coordination.layout import BrokerPartition, Subscription, make_consumer_id
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import Blacklist, TopicFilter
from hermes.security import PLAIN, ClientSecurity

_log = logging.getLogger(__name__)

#: The group of a cluster's counters is this with the cluster's name.
GROUP_PREFIX: Final = "hermes-audit-"

# A broker pays for fetches more than for bytes: the counter asks seldom, and for much.
_FETCH_BYTES: Final = 16 * 1024 * 1024
_RESTING_SHARE: Final = 1 / 3
_BUFFER_BYTES: Final = 256 * 1024 * 1024
_PUBLISH_SECONDS: Final = (1.0, 30.0)


class ClusterCounter:
    """One of the processes that count a cluster.

        publisher = Publisher(ProducerConfig(zookeeper_connect=connect))
        counter = ClusterCounter("east", connect, publisher)
        counter.start()
        ...
        counter.stop()
        publisher.close()

    Args:
        name: the cluster's: the tier is `cluster:NAME`, the group `hermes-audit-NAME`.
        publisher: sends the reports; the caller closes it.
        topics: which to count; None for all but Hermes' own.
        window_ms: how long windows are; the same in all tiers.

    Raises:
        CoordinationUnavailableError: coordination can't be reached.
    """

    def __init__(
        self,
        name: str,
        zookeeper_connect: str,
        publisher: SendsEvents,
        *,
        topics: TopicFilter | None = None,
        window_ms: int = DEFAULT_WINDOW_MS,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self.name = name
        self.group = GROUP_PREFIX + name
        self.counter = TierCounter(f"cluster:{name}", publisher, window_ms=window_ms)
        self._topics = topics or Blacklist(f"{OWN_TOPICS}.*")
        low, high = _PUBLISH_SECONDS
        self._pause_seconds = min(max(window_ms / 2000, low), high)
        self._stopped = threading.Event()
        config = ConsumerConfig(
            group=self.group,
            zookeeper_connect=zookeeper_connect,
            auto_offset_reset="smallest",
            prefetch_bytes=_BUFFER_BYTES,
            fetch_bytes=_FETCH_BYTES,
            fetch_wait="1ms",
            **security.settings(),
        )
        self._session = Session(zookeeper_connect, on_change=self._changed, security=security)
        self._membership: GroupMember | None = None
        self._commits = CommitReporter(
            f"cluster:{name}",
            self._session,
            lambda tier: Outbox(tier, publisher, window_ms=window_ms),
            GROUP_PREFIX,
        )
        self._session.start()
        token = uuid.uuid4().hex[:8]
        now_ms = time.time_ns() // 1_000_000
        self._membership = GroupMember(
            config,
            make_consumer_id(self.group, socket.gethostname(), now_ms, token),
            self._session,
            self._released,
            _nothing,
            make_claim=partial(CountingClaim, self.counter),
            make_fetcher=partial(
                CountingFetcher, self.counter, self._pause_seconds * _RESTING_SHARE
            ),
        )
        self._thread = threading.Thread(target=self._run, name="hermes-audit-count", daemon=True)

    def start(self) -> None:
        """Join the group and begin to count; IdInUseError if a live member has the same id."""
        assert self._membership is not None
        stream = MessageStream(f"audit-{self.name}", None, None, lambda: None)
        self._membership.start(Subscription({}, self._topics, 1), [stream])
        self._thread.start()

    def hurry(self) -> None:
        """Read what there is now, without a rest."""
        assert self._membership is not None
        self._membership.wake_fetchers()

    def claims(self) -> list[CountingClaim]:
        assert self._membership is not None
        return [each for each in self._membership.claims() if isinstance(each, CountingClaim)]

    def uncounted(self, since: float) -> list[str]:
        """The partitions not counted to their end since then, on the monotonic clock."""
        return [str(each) for each in self.claims() if each.reached_at < since]

    def publish(self) -> bool:
        """Report what was counted; the offsets are committed soon. See `TierCounter.publish`."""
        if not self.counter.publish():
            return False
        for claim in self.claims():
            claim.note_published()
        return True

    def report_commits(self, *, is_due: bool = False) -> None:
        """Report how far groups have come that don't count themselves; see `CommitReporter`."""
        claims = {(each.topic, each.log): each for each in self.claims()}
        counted = [
            CountedLog(*key, each.partition, each.begin, each.position)
            for key, each in claims.items()
        ]
        for key in self._commits.report(counted, is_due=is_due):
            # What a group hasn't read by the time when it is deleted is lost to it.
            claims[key].look_for_begin_at = time.monotonic()

    def stop(self) -> bool:
        """Report the rest, commit and leave the group; returns whether everything is reported."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        assert self._membership is not None
        self._membership.stop()
        self._session.stop()
        return self.counter.close()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_seconds):
            if self.publish():
                self.report_commits()

    def _released(self, _partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        self.publish()

    def _changed(self) -> None:
        if self._membership is not None:
            self._membership.wake()


def _nothing(_partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
    pass
