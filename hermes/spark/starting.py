"""Streams of one driver that start at the same moment.

Spark (4.2 and 4.3) keeps the environment of a data source's Python processes in one map for all
streams of a driver, and each stream that starts puts its values into it without a lock. Two that
put a new name at once can leave the map with a wrong size: tasks then fail until the driver is
started again ("Illegal size 5 of collection"). A name that is there already changes nothing but its
value. So the names are put there before, in one thread.
"""

import logging
import tempfile
import threading
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

__all__ = ["prepare_streams"]

_FORMAT: Final = "hermes"
_LOCK: Final = threading.Lock()

_log = logging.getLogger(__name__)


def prepare_streams(spark: SparkSession) -> None:
    """Make it safe to start several streams at once.

    Call it once, before the first of them starts; `write_stream_to_delta` does. Sessions of Spark
    Connect need nothing of the kind here: it is their server's driver that starts streams.

    Example:
        prepare_streams(spark)
        for topic in topics:
            stream(topic).writeStream.start(f"data/{topic}", checkpointLocation=f"state/{topic}")

    Args:
        spark: the session.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    with _LOCK:
        try:
            _fill(spark)
        except (Py4JError, TypeError) as error:  # another Spark, which may have no such map
            _log.debug("the environment of sources can't be prepared: %s", error)


def _fill(spark: SparkSession) -> None:
    session: Any = spark._jsparkSession
    source = session.sessionState().dataSourceManager().lookupDataSource(_FORMAT)
    environment = source.dataSourceCls().envVars()
    conf = spark.sparkContext.getConf()
    for name, text in {
        "SPARK_LOCAL_DIRS": conf.get("spark.local.dir", tempfile.gettempdir()),
        "SPARK_AUTH_SOCKET_TIMEOUT": _seconds(conf),
        "SPARK_BUFFER_SIZE": conf.get("spark.buffer.size", "65536"),
        "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
    }.items():
        environment.putIfAbsent(name, text)  # each start puts its own value in its place


def _seconds(conf: Any) -> str:
    return str(conf._jconf.getTimeAsSeconds("spark.python.authenticate.socketTimeout", "15s"))
