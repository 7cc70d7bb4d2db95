"""The claims of a mirror in one source, where the membership of a group keeps a stream."""

import time
from collections.abc import Iterable

from hermes.client.groups.streams import Claim, MessageStream
from hermes.errors import HermesError
from hermes.mirror.source_claim import ClaimContext, SourceClaim


class SourceStream(MessageStream):
    """Holds the claims of a mirror in one source; nobody iterates over it."""

    def __init__(self, name: str, context: ClaimContext) -> None:
        super().__init__(name, None, None, context.has_room)
        self._context = context

    def replace_claims(self, add: Iterable[Claim] = (), remove: Iterable[Claim] = ()) -> None:
        added = list(add)
        super().replace_claims(added, remove)
        for claim in added:
            assert isinstance(claim, SourceClaim)
            self._context.plan(claim, 0.0)

    def claims(self) -> list[SourceClaim]:
        with self.lock:
            return [each for each in self._claims if isinstance(each, SourceClaim)]

    def wait_until_finished(self, claim: Claim, deadline: float) -> bool:
        assert isinstance(claim, SourceClaim)
        with self.lock:
            return self.lock.wait_for(claim.is_idle, max(0.0, deadline - time.monotonic()))

    def fail(self, error: HermesError) -> None:
        self._context.note(f"{self.name}: {error}")
