"""Rows as comma-separated values, one row a message."""

import csv
import io
from typing import Any

from zope.interface import implementer

from hermes.errors import EncodingError
from hermes.interfaces import IDecoder, IEncoder


@implementer(IEncoder, IDecoder)
class CsvEncoder:
    """Encodes a tuple or a list of fields; decodes to a list of texts."""

    def encode(self, topic: str, value: Any) -> bytes:
        """See `IEncoder`."""
        if not isinstance(value, list | tuple):
            raise EncodingError(f"expected a row (a tuple), got {type(value).__name__}")
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(value)
        return line.getvalue().encode()

    def decode(self, topic: str, payload: bytes) -> Any:
        """See `IDecoder`."""
        try:
            (row,) = csv.reader([payload.decode()], strict=True)
        except (UnicodeDecodeError, ValueError, csv.Error) as error:
            raise EncodingError(f"the payload is no row: {error}") from error
        return row
