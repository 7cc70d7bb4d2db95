"""The claims of a mirror in one source, where the membership of a group keeps a stream."""

import time
from collections.abc import Iterable

from hermes.client.groups.claims import Claim
from hermes.client.groups.streams import MessageStream
from hermes.errors import HermesError
from hermes.mirror.claims import SourceClaim, Surroundings


class SourceStream(MessageStream):
    """Holds the claims of a mirror in one source; nobody iterates over it.

    Args:
        name: the source's name.
        surroundings: what its claims report to.
    """

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        super().__init__(name, None, None, surroundings.has_room)
        self._surroundings = surroundings

    def replace_claims(self, add: Iterable[Claim] = (), remove: Iterable[Claim] = ()) -> None:
        """See `MessageStream`; new claims are planned."""
        added = list(add)
        super().replace_claims(added, remove)
        for claim in added:
            assert isinstance(claim, SourceClaim)
            self._surroundings.plan(claim, 0.0)

    def claims(self) -> list[SourceClaim]:
        """The partitions that are owned now."""
        with self.lock:
            return [each for each in self._claims if isinstance(each, SourceClaim)]

    def wait_until_finished(self, claim: Claim, deadline: float) -> bool:
        """Wait until nothing of a revoked claim is on its way."""
        assert isinstance(claim, SourceClaim)
        with self.lock:
            return self.lock.wait_for(claim.is_idle, max(0.0, deadline - time.monotonic()))

    def fail(self, error: HermesError) -> None:
        """Say what keeps the group from sharing out the partitions."""
        self._surroundings.note(f"{self.name}: {error}")
