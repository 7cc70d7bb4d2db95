"""Which Spark this is, found out before anything of it is used."""

import re
from importlib.metadata import version
from typing import Final

from hermes.extras import install_command

_OLDEST: Final = (4, 2)


def check_spark(installed: str | None = None) -> None:
    """Raise ImportError for a PySpark that is too old; the text says what it lacks."""
    found = installed or version("pyspark")
    numbers = tuple(int(each) for each in re.findall(r"\d+", found)[:2])
    if numbers < _OLDEST:
        raise ImportError(
            f"hermes.spark needs PySpark 4.2 or newer, and this is {found}: before that, sources "
            "in Python can neither limit a micro-batch nor end a query with Trigger.AvailableNow. "
            f"On the cluster as well: {install_command('spark')}"
        )
