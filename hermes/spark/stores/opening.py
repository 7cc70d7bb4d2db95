"""From an address to its store; addresses of other kinds are refused by name."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from hermes.errors import ConfigError, LoadTargetError
from hermes.spark.file_system import LocalFileSystem, is_address, local_path
from hermes.spark.stores.local import LocalStore
from hermes.spark.stores.s3_settings import Lookup, find_settings, names_credentials
from hermes.spark.stores.store import FileStore

Session: TypeAlias = Any | Callable[[], Any] | None
"""A `SparkSession`, or a function that starts one, called only if something needs it; or None."""

_S3: Final = ("s3", "s3a")
_HDFS: Final = ("hdfs",)


def open_store(
    address: str | Path,
    session: Session = None,
    storage: Mapping[str, str] | None = None,
    files: LocalFileSystem | None = None,
) -> FileStore:
    """Open a directory, `file://`, `s3://`, `s3a://` or `hdfs://`; reads and writes nothing yet.

    Settings of `storage`, by Hadoop's names of S3A, win over the session's and the environment's.
    `files` is for tests.

    Raises:
        LoadTargetError: the address is of something else, or can't be used.
        LoadError: a package is missing.
        ConfigError: a setting is unknown, or there is nothing to set.
    """
    text = str(address)
    scheme = text.partition(":")[0].lower() if is_address(text) else ""
    if scheme in (*_S3, *_HDFS) and isinstance(address, Path):
        raise LoadTargetError(f"{address}: give an address as text; Path takes a slash from it")
    if scheme in _S3:
        return _open_s3(text, session, storage or {})
    if storage:
        raise ConfigError(min(storage), "only addresses of S3 have settings of storage")
    if scheme in _HDFS:
        from hermes.spark.stores.hadoop import HadoopStore

        return HadoopStore(text, _started(session, text))
    if scheme not in ("", "file"):
        shown = re.sub("//[^/@]*@", "//", text)
        raise LoadTargetError(
            f"{shown}: expected a directory, s3:// or s3a:// (S3 and what is compatible), or "
            f"hdfs://; how one of several loads wins on {scheme}: is not known here"
        )
    return LocalStore(local_path(address), files)


def is_s3(address: str | Path) -> bool:
    return is_address(address) and str(address).partition(":")[0].lower() in _S3


def _open_s3(address: str, session: Session, storage: Mapping[str, str]) -> FileStore:
    from hermes.spark.stores.s3 import S3Store, split_address  # needs the extra `s3`

    _, bucket, _ = split_address(address)
    is_lazy = session is None or (callable(session) and names_credentials(storage, os.environ))
    lookup = None if is_lazy else _spark_lookup(_started(session, address))
    return S3Store(address, find_settings(bucket, storage, lookup, os.environ))


def _started(session: Session, address: str) -> Any:
    found = session() if callable(session) else session
    if found is None:
        raise LoadTargetError(f"{address}: this needs Spark's session: pass it as `spark`")
    return found


def _spark_lookup(spark: Any) -> Lookup:
    """Look settings up as Hadoop does: passwords may be in a credential store of its own."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()

    def look_up(name: str) -> str | None:
        if name.endswith(("access.key", "secret.key", "session.token")):
            characters = configuration.getPassword(name)
            return None if characters is None else "".join(characters)
        sources = configuration.getPropertySources(name)
        if not sources or sources[0] == "core-default.xml":
            return None  # Hadoop's own default, which nobody has set
        text: str | None = configuration.get(name)
        return text

    return look_up
