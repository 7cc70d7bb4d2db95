"""What went wrong in Spark, in one line: the cause, out of the traces that Spark wraps it in."""

import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

__all__ = ["SPARK_FAILURES", "failure_text"]

#: What Spark raises.
SPARK_FAILURES: Final = (PySparkException, Py4JError)

# The last line of a Python traceback that ends in one of our exceptions, and of any trace.
_OURS: Final = re.compile(r"^hermes\.errors\.\w+: (.+)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)


def failure_text(error: Exception) -> str:
    """The cause of a failure: Hermes' own text where it has one, else the innermost cause.

    Args:
        error: what Spark raised.
    """
    text = str(error).strip()
    for pattern in (_OURS, _CAUSE):
        if found := pattern.findall(text):
            return str(found[-1])
    return text.splitlines()[0] if text else type(error).__name__
