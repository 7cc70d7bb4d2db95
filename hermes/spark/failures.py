"""What went wrong in Spark, in one line: the cause, out of the traces that Spark wraps it in."""

import re
from typing import Final

from pyspark.errors import PySparkException

__all__ = ["failure_text"]

# The last line of a Python traceback that ends in one of our exceptions.
_OURS: Final = re.compile(r"^hermes\.errors\.(\w+): (.+?)$", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+?)$", re.MULTILINE)


def failure_text(error: PySparkException) -> str:
    """The cause of a failure: Hermes' own text where it has one, else the innermost cause.

    Args:
        error: what Spark raised.
    """
    text = str(error)
    java = getattr(error, "_origin", None)
    if java is not None:
        text = f"{text}\n{_trace(java)}"
    for pattern in (_OURS, _CAUSE):
        if found := pattern.findall(text):
            last = found[-1]
            return str(last if isinstance(last, str) else last[1])
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _trace(java: object) -> str:
    """The whole of a Java exception, causes included."""
    try:
        return str(java.getCause().toString() if java.getCause() is not None else "")  # type: ignore[attr-defined]
    except Exception:  # the JVM may be gone
        return ""
