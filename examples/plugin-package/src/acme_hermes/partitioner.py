"""Keeps what belongs together on partitions of its own: a range of partitions for each region."""

import random
from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from hermes.errors import LocalProtocolError
from hermes.interfaces import IPartitioner


@implementer(IPartitioner)
class RegionPartitioner:
    """Deals the partitions out to regions; a message's key is its region.

    Args:
        regions: their names, in an order that all producers share.
    """

    def __init__(self, regions: Sequence[str]) -> None:
        if not regions:
            raise ValueError("regions: expected at least one name")
        self._places = {region: place for place, region in enumerate(regions)}

    def partition(self, topic: str, key: Any, partition_count: int) -> int:
        """See `IPartitioner`."""
        if key is None:
            return random.randrange(partition_count)
        if key not in self._places:
            raise LocalProtocolError(f"{key!r} is none of the regions {', '.join(self._places)}")
        return self._places[key] % partition_count
