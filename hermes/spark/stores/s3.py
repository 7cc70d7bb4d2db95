"""S3 and what is compatible: a conditional put creates if absent, checked before it is relied on.

Data files go through Spark's own S3A. Addresses begin with `s3://` or `s3a://`, and are printed as
they were given. Of answers only code and message are shown: the rest may quote what was signed.
"""

import random
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, TypeVar

from hermes.errors import LoadError, LoadTargetError
from hermes.extras import install_command
from hermes.spark.stores.error_texts import error_text
from hermes.spark.stores.remote import RemoteStore
from hermes.spark.stores.s3_settings import S3Settings
from hermes.spark.stores.store import StoredFile

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import S3Store as Client
except ModuleNotFoundError as missing:
    raise LoadError(f"S3 needs another package: {install_command('s3')}") from missing

Result = TypeVar("Result")

_ADDRESS: Final = re.compile(r"(s3a?)://([^/?#@]+)/*([^?#]*?)/*")

# How many write the same name at once to find out whether only one of them can.
_PROBES: Final = 4
# Before a put is tried again that met others, in seconds.
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_FILE_SYSTEM: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_RETRIES: Final[Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}


class S3Store(RemoteStore):
    """Objects below a prefix. LoadTargetError for another address than `s3://BUCKET/PREFIX`."""

    def __init__(self, address: str, settings: S3Settings) -> None:
        super().__init__(address)
        _, self.bucket, self.prefix = split_address(address)
        self.settings = settings
        arguments: Any = settings.for_obstore()
        try:
            self._client = Client(
                self.bucket, prefix=self.prefix or None, retry_config=_RETRIES, **arguments
            )
        except BaseError as error:  # a variable of AWS' that can't be parsed
            raise LoadTargetError(f"{self.address}: {error_text(str(error))}") from error

    def url(self, name: str = "") -> str:
        # Spark knows S3 by the name of its file system, S3A.
        return "/".join(each for each in (f"s3a://{self.bucket}", self.prefix, name) if each)

    def spark_settings(self, spark: Any) -> Mapping[str, str]:
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        if configuration.getClassByNameOrNull(_FILE_SYSTEM) is None:
            raise LoadError(
                f"{self.address}: Spark has no file system for S3: start it with --packages "
                f"{spark_package(spark)} (or the setting spark.jars.packages)"
            )
        return self.settings.for_spark()

    def delta_table(self) -> tuple[str, dict[str, str]]:
        return self.url(), self.settings.for_delta()

    def read(self, name: str) -> bytes | None:
        try:
            return self._ask(name, lambda: bytes(obstore.get(self._client, name).bytes()))
        except FileNotFoundError:
            return None

    def size_bytes(self, name: str) -> int:
        return self._ask(name, lambda: obstore.head(self._client, name)["size"])

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._ask(
            name, lambda: bytes(obstore.get_range(self._client, name, start=start, length=length))
        )

    def names(self, directory: str = "", after: str = "") -> list[str]:
        inner = f"{directory}/" if directory else ""
        if after:
            found = [each.name for each in self._list(directory, f"{inner}{after}")]
        else:
            listed = self._ask(
                directory, lambda: obstore.list_with_delimiter(self._client, directory or None)
            )
            objects = [each["path"] for each in listed["objects"]]
            found = [*listed["common_prefixes"], *objects]
        names = {each.removeprefix(inner).partition("/")[0] for each in found if each != directory}
        return sorted(each for each in names if each > after)

    def walk(self, directory: str = "") -> list[StoredFile]:
        return sorted(self._list(directory))

    def prepare(self, *directories: str) -> None:
        # Several create one object at once, and only one may succeed.
        name = f"_hermes/.probe-{secrets.token_hex(8)}"
        contents = [b"%d" % number for number in range(_PROBES)]
        with ThreadPoolExecutor(_PROBES) as pool:
            won = list(pool.map(lambda content: self._put(name, content), contents))
        is_honoured = won.count(True) == 1 and self.read(name) == contents[won.index(True)]
        self.delete(name)
        if not is_honoured:
            raise LoadTargetError(
                f"{self.address}: this store doesn't honour conditional puts (If-None-Match), by "
                "which one of several loads wins: choose one that does"
            )

    def create(self, name: str, content: bytes) -> bool:
        # A put whose answer was lost is tried again, and finds its own object.
        return self._put(name, content) or self.read(name) == content

    def delete(self, name: str) -> None:
        self._ask(name, lambda: obstore.delete(self._client, name))

    def delete_tree(self, directory: str) -> None:
        names = [each.name for each in self._list(directory)]
        if names:
            self._ask(directory, lambda: obstore.delete(self._client, names))

    def move(self, source: str, target: str) -> None:
        self._ask(source, lambda: obstore.copy(self._client, source, target))
        self.delete(source)

    def _put(self, name: str, content: bytes) -> bool:
        def put() -> bool:
            for pause in (*_PAUSES, None):
                try:
                    obstore.put(self._client, name, content, mode="create", use_multipart=False)
                except AlreadyExistsError as error:
                    if self._is_there(name):
                        return False
                    # Others wrote the same name, and a server may refuse all of them at once,
                    # or before the one whose object it will be can be seen.
                    if pause is None:
                        if "409 Conflict" in str(error):
                            raise
                        return False
                    threading.Event().wait(pause * (0.5 + random.random()))
                else:
                    return True
            raise AssertionError("the last attempt returns or raises")

        return self._ask(name, put)

    def _is_there(self, name: str) -> bool:
        try:
            obstore.head(self._client, name)
        except FileNotFoundError:
            return False
        return True

    def _list(self, directory: str, after: str | None = None) -> list[StoredFile]:
        def run() -> list[StoredFile]:
            pages = obstore.list(self._client, directory or None, offset=after)
            return [
                StoredFile(
                    each["path"], each["size"], int(each["last_modified"].timestamp() * 1000)
                )
                for page in pages
                for each in page
            ]

        return self._ask(directory, run)

    def _ask(self, name: str, request: Callable[[], Result]) -> Result:
        """Make a request; an error is reported without what was signed."""
        try:
            return request()
        except FileNotFoundError as error:
            code = re.search("<Code>(.*?)</Code>", str(error))
            if code is not None and code[1] != "NoSuchKey":  # no such bucket, or no such user
                raise self._failed(self.place(), error) from None
            raise FileNotFoundError(f"{self.place(name)} is missing") from None
        except BaseError as error:
            raise self._failed(self.place(name), error) from None

    def _failed(self, place: str, error: Exception) -> LoadTargetError:
        where = self.settings.endpoint or f"AWS, {self.settings.region}"
        return LoadTargetError(f"{place}: {error_text(str(error))} ({where})")


def spark_package(spark: Any) -> str:
    """What Spark needs for S3, of the version of the Hadoop that it comes with."""
    version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    return f"org.apache.hadoop:hadoop-aws:{version}"


def split_address(address: str) -> tuple[str, str, str]:
    """The scheme, bucket and prefix of an address; LoadTargetError for anything else."""
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise LoadTargetError(
            "an address of S3 holds no credentials: give them by the environment or by options"
        )
    found = _ADDRESS.fullmatch(address)
    if found is None or any(part in ("", ".", "..") for part in (found[3] or "x").split("/")):
        raise LoadTargetError(f"{address}: expected s3://BUCKET/PREFIX, or s3a://BUCKET/PREFIX")
    return found[1], found[2], found[3]
