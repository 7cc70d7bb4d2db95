"""What a log has of the sources of mirrors, kept beside its segments."""

from hermes.protocol import SourceSpan
from hermes.storage.source_spans import SourceRange, SourceSpans


class SourcePositions:
    """The sources of one log. The log's lock guards it.

    Attributes:
        spans: what there is.
        is_begun: whether ranges may be appended.
    """

    def __init__(self) -> None:
        self.spans = SourceSpans()
        self.is_begun = True

    def write(self, wanted: SourceRange, log_begin: int, log_end: int) -> SourceSpan:
        """Write down what is about to be appended."""
        number = self.spans.number(wanted.source)
        if number is None:
            number = self.spans.add(wanted.source)
        return SourceSpan(number, wanted.flags, wanted.begin, wanted.end, log_begin, log_end)
