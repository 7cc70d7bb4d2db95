"""The status of a mirror process: published in the target's coordination, and given to who asks."""

import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from hermes._version import __version__
from hermes.coordination.mirrors import MirroredPartition, MirrorProcess
from hermes.errors import CoordinationError
from hermes.mirror.figures import PartitionFigures
from hermes.mirror.pipeline import Mirror

_log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 3.0
#: Large nodes are written less often: each goes to every server of an ensemble, and to its disk.
_BYTES_PER_SECOND: Final = 64 * 1024
#: Rates are those between the last look and the one that many before it.
_LOOKS: Final = 4
#: Longer names of machines are cut: ZooKeeper has to take the name of the node.
_HOST_LENGTH: Final = 100


class StatusPublisher:
    """Publishes a mirror's status, in a thread.

    Args:
        source_ids: of each source its id, by its name; empty while it isn't known.
        clock: monotonic, in seconds.

    Attributes:
        http: where the process serves HTTP; empty for nowhere.
    """

    def __init__(
        self,
        mirror: Mirror,
        name: str,
        source_ids: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.http = ""
        self._mirror = mirror
        self._name = name
        self._host = socket.gethostname()[:_HOST_LENGTH].replace("/", "-")
        self._process = f"{self._host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._source_ids = source_ids
        self._clock = clock
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._looks: deque[tuple[float, dict[tuple[str, str, str], int]]] = deque(maxlen=_LOOKS)
        self._rates: dict[tuple[str, str, str], float] = {}
        self._stopping = threading.Event()
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="hermes-mirror-state", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Remove what was published; the mirror's session must still live."""
        self._stopping.set()
        self._thread.join()
        session = self._mirror.target_session
        if session is not None:
            try:
                session.delete_own(self.now().path)
            except CoordinationError as error:  # it goes with the session
                _log.debug("the published status is not removed: %s", error)

    def figures(self) -> list[PartitionFigures]:
        return sorted(self._mirror.figures(), key=_place)

    def now(self) -> MirrorProcess:
        """The status; any thread may call."""
        figures, rates = self.figures(), self._rates
        held = [each for each in figures if each.is_held]
        rows = [
            MirroredPartition(
                each.source,
                each.topic,
                each.partition,
                each.target_topic,
                each.position,
                each.end,
                round(rates.get(_place(each), 0.0), 1),
                each.error,
            )
            for each in held
        ]
        return MirrorProcess(
            self._name,
            self._process,
            host=self._host,
            pid=os.getpid(),
            version=__version__,
            started_ms=self._started_ms,
            time_ms=self._now_ms(),
            sources=dict(self._source_ids),
            target=self._mirror.target_id,
            http=self.http,
            messages=sum(each.messages for each in figures),
            mirrored_bytes=sum(each.bytes for each in figures),
            rate_bytes=round(sum(rates.values()), 1),
            lag_bytes=sum(row.lag_bytes or 0 for row in rows),
            duplicates=sum(each.duplicates for each in figures),
            damaged=sum(each.damaged for each in figures),
            lost_bytes=sum(each.lost_bytes for each in figures),
            count=len(held),
            partitions=tuple(rows),
            errors=dict(self._mirror.errors),
            refused=dict(self._mirror.refused),
        )

    # -- its thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self.look()
            if self._stopping.wait(_EVERY_SECONDS + self._publish() / _BYTES_PER_SECOND):
                return

    def look(self) -> None:
        now, counts = self._clock(), {_place(each): each.bytes for each in self._mirror.figures()}
        self._looks.append((now, counts))
        then, before = self._looks[0]
        if now > then:
            seconds = now - then
            self._rates = {
                place: (count - before.get(place, 0)) / seconds for place, count in counts.items()
            }

    def _publish(self) -> int:
        session = self._mirror.target_session
        if session is None:
            return 0
        status = self.now()
        value = status.format()
        try:
            session.create_ephemeral(status.path, value)
        except CoordinationError as error:
            if not self._has_warned:
                _log.warning(
                    "the mirror's status can't be published in the target's coordination: %s", error
                )
            self._has_warned = True
        else:
            self._has_warned = False
        return len(value)


def _place(figures: PartitionFigures) -> tuple[str, str, str]:
    return figures.source, figures.topic, figures.partition
