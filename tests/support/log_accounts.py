"""What one log has told its users, and what must hold of it after any stop of the machine."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage_logs import bytes_of, read_all

from hermes.storage import Log


@dataclass
class Account:
    """What one log has told its users.

    Attributes:
        size: how many bytes each append has.
        unit: how many bytes an offset counts: 1, or those of a batch.
        accepted: the bytes of appends that returned, from offset 0 on; what is not known to be
            accepted is missing at the end.
        flushed: the largest high watermark that was reported.
        earliest: the largest earliest offset that was reported after a delete returned.
        maybe_earliest: the largest that a delete which failed may have reached.
    """

    size: int
    unit: int = 1
    accepted: bytearray = field(default_factory=bytearray)
    flushed: int = 0
    earliest: int = 0
    maybe_earliest: int = 0

    @property
    def end(self) -> int:
        """The offset behind what was accepted."""
        return len(self.accepted) // self.unit

    def between(self, start: int, end: int) -> bytearray:
        """The bytes that were accepted from one offset to another."""
        return self.accepted[start * self.unit : end * self.unit]

    def read(self, log: Log, start: int) -> bytes:
        """All that is visible from an offset on."""
        if not log.counts_messages:
            return read_all(log, start)
        parts = []
        while start < log.high_watermark:
            with log.read(start, 1 << 30) as part:
                parts.append(bytes_of(log, part))
            start += len(parts[-1]) // self.unit
        return b"".join(parts)

    def check(self, log: Log, bad_ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Hold a log, opened again on a healthy disk, against what was told.

        `bad_ranges` are what recovery reported: blocks that never reached the disk, with later ones
        that did. Nothing that was flushed may be in them.
        """
        assert not log.is_offline, log.offline_reason
        assert log.earliest <= self.maybe_earliest
        assert log.high_watermark >= self.flushed
        start = max(log.earliest, self.earliest)
        content = self.read(log, start)
        unit = self.unit
        assert log.high_watermark * unit == start * unit + len(content)
        expected = self.between(start, log.high_watermark)
        for bad, end in bad_ranges:
            assert bad >= self.flushed
            lost = slice((bad - start) * unit, (end - start) * unit)
            expected[lost] = content[lost]
        # No hole, nothing invented, nothing torn; more than was flushed may have survived.
        assert expected == content
        assert all(part in self.boundaries() for part in (log.earliest, log.high_watermark))

    def boundaries(self) -> set[int]:
        return set(range(0, self.end + 1, self.size // self.unit))
