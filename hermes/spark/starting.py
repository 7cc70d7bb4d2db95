"""Streams of one driver that start at the same moment.

Spark (4.2 and 4.3) keeps the environment of a data source's Python processes in one map for all
streams of a driver, and each stream that starts puts its values into it without a lock. Two that
put a new name at once can leave the map with a wrong size: tasks then fail ("Illegal size 5 of
collection") until the driver is started again. A name that is there already changes nothing but its
value. So the names are put there before, in one thread, by whatever of Hermes gets a stream in its
hands; and a map that is damaged is made good.
"""

import logging
import tempfile
import threading
from typing import Any, Final

from py4j.java_gateway import get_method  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

__all__ = ["prepare_streams", "prepared"]

_FORMAT: Final = "hermes"
_LOCK: Final = threading.Lock()

_log = logging.getLogger(__name__)


def prepare_streams(spark: SparkSession) -> None:
    """Make it safe to start several streams at once.

    Whoever hands a stream to a function of `hermes.spark` needs not call it; who starts several
    that are read and written by Spark alone calls it once, before the first of them starts. It also
    repairs what streams have damaged that were started without it: start those again. Sessions of
    Spark Connect need nothing of the kind here: it is their server's driver that starts streams.

    Example:
        prepare_streams(spark)
        for topic in topics:
            stream(topic).writeStream.start(f"data/{topic}", checkpointLocation=f"state/{topic}")
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    with _LOCK:
        try:
            _fill(spark)
        except (Py4JError, TypeError) as error:  # another Spark, which may have no such map
            _log.debug("the environment of sources can't be prepared: %s", error)


def prepared(rows: DataFrame) -> DataFrame:
    """The same rows; if they are a stream, it is safe to start it together with others."""
    if rows.isStreaming:
        prepare_streams(rows.sparkSession)
    return rows


def _fill(spark: SparkSession) -> None:
    session: Any = spark._jsparkSession
    source = session.sessionState().dataSourceManager().lookupDataSource(_FORMAT)
    environment = source.dataSourceCls().envVars()
    _repair(environment)
    conf = spark.sparkContext.getConf()
    for name, text in {
        "SPARK_LOCAL_DIRS": conf.get("spark.local.dir", tempfile.gettempdir()),
        "SPARK_AUTH_SOCKET_TIMEOUT": _seconds(conf),
        "SPARK_BUFFER_SIZE": conf.get("spark.buffer.size", "65536"),
        "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
    }.items():
        environment.putIfAbsent(name, text)  # each start puts its own value in its place


def _repair(environment: Any) -> None:
    """Put what is in the map into it once more, if it counts wrong."""
    there = dict(environment)
    if len(there) == environment.size():
        return
    _log.warning("streams that started at once had damaged the environment of sources; repaired")
    try:
        inner = environment.underlying()  # Scala's; its wrapper removes one by one, and counts on
    except Py4JError:  # a source that was registered by hand has a map of Java's
        inner = environment
    get_method(inner, "clear")()  # Java's own: py4j's, too, would remove one by one
    for name, text in there.items():
        environment.put(name, text)


def _seconds(conf: Any) -> str:
    return str(conf._jconf.getTimeAsSeconds("spark.python.authenticate.socketTimeout", "15s"))
