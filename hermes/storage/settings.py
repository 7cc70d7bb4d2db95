"""How a topic's logs are kept: the settings that storage itself needs.

Retention and flushing are decided above storage, so their settings are there too.
"""

from dataclasses import dataclass
from typing import Final

#: No segment grows beyond it: Kafka opens none that is larger, and its indexes have 31 bits for a
#: place in a file.
MAX_SEGMENT_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How one topic's logs are kept.

    Attributes:
        segment_bytes: roll before an append when the active segment is strictly larger.
        segment_age_ms: roll before an append when the segment's first append is longer ago.
        max_message_bytes: the largest payload that recovery believes in after damage.
    """

    segment_bytes: int = 1024**3
    segment_age_ms: int = 7 * 24 * 60 * 60 * 1000
    max_message_bytes: int = 1_000_000
    format: str = "0.7"
