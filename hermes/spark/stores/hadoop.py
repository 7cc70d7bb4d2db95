"""HDFS, by the client that Spark comes with.

A record is written under another name, flushed to the disks of the data nodes, and renamed: the
name node renames to a free name only, in one step. `create(path, overwrite=False)` alone would give
the name before there is content, and a writer that is killed would leave it empty.
"""

import errno
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from hermes.errors import LoadTargetError
from hermes.quoting import printable
from hermes.spark.stores.ranges import range_file
from hermes.spark.stores.store import StoredFile, innermost_first

Result = TypeVar("Result")

_ADDRESS: Final = re.compile(r"hdfs://([^/?#@]*)(/[^?#]*?)/*")


class HadoopStore:
    """A directory of HDFS; as `FileStore`.

    Args:
        address: `hdfs://HOST:PORT/DIRECTORY`, or `hdfs:///DIRECTORY` for the cluster that Spark is
            set up for, as it was given.
        spark: the session whose client is used.

    Raises:
        LoadTargetError: the address is none, or the cluster can't be used.
    """

    path = None

    def __init__(self, address: str, spark: Any) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None or any(part in (".", "..") for part in found[2].split("/")):
            raise LoadTargetError(f"{address}: expected hdfs://HOST:PORT/DIRECTORY")
        self.address = address.rstrip("/")
        self._gateway = spark.sparkContext._gateway
        self._jvm = spark.sparkContext._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(self.address)
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._system = self._ask("", lambda: self._root.getFileSystem(configuration))
        # What Spark, and so every reader, calls the root: with host and port.
        self._root = self._system.makeQualified(self._root)
        self._context = self._ask(
            "",
            lambda: self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._root.toUri(), configuration
            ),
        )

    def place(self, name: str = "") -> str:
        """As `FileStore.place`."""
        return f"{self.address}/{name}" if name else self.address

    def url(self, name: str = "") -> str:
        """As `FileStore.url`."""
        return str(self._path(name).toString())

    def spark_settings(self, spark: Any) -> Mapping[str, str]:
        """As `FileStore.spark_settings`."""
        return {}

    def delta_table(self) -> tuple[str, dict[str, str]]:
        """As `FileStore.delta_table`: deltalake can't commit there."""
        raise LoadTargetError(
            f"{self.address}: Delta tables are kept in directories or on S3, not on HDFS: choose "
            "another address, or load as Parquet"
        )

    def read(self, name: str) -> bytes | None:
        """As `FileStore.read`."""
        try:
            with self.open(name) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def open(self, name: str, size_bytes: int | None = None) -> BinaryIO:
        """As `FileStore.open`."""
        path = self._path(name)
        if size_bytes is None:
            size_bytes = self._ask(name, lambda: self._system.getFileStatus(path).getLen())

        def read(start: int, length: int) -> bytes:
            def run() -> bytes:
                stream = self._system.open(path)
                try:
                    stream.seek(start)
                    return bytes(
                        self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, length)
                    )
                finally:
                    stream.close()

            return self._ask(name, run)

        return range_file(size_bytes, read)

    def names(self, directory: str = "", after: str = "") -> list[str]:
        """As `FileStore.names`."""
        path = self._path(directory)
        try:
            statuses = self._ask(directory, lambda: self._system.listStatus(path))
        except FileNotFoundError:
            return []
        if len(statuses) == 1 and statuses[0].getPath().equals(path):
            raise NotADirectoryError(f"{self.place(directory)} is not a directory")
        return sorted(name for each in statuses if (name := each.getPath().getName()) > after)

    def walk(self, directory: str = "") -> list[StoredFile]:
        """As `FileStore.walk`."""

        def run() -> list[StoredFile]:
            found, root = [], self.url() + "/"
            listed = self._system.listFiles(self._path(directory), True)
            while listed.hasNext():
                each = listed.next()
                name = str(each.getPath().toString()).removeprefix(root)
                found.append(StoredFile(name, each.getLen(), each.getModificationTime()))
            return sorted(found)

        try:
            return self._ask(directory, run)
        except FileNotFoundError:
            return []

    def prepare(self, *directories: str) -> None:
        """As `FileStore.prepare`: every name node renames to free names only."""
        for each in ("", *directories):
            self.make_directory(each)

    def create(self, name: str, content: bytes) -> bool:
        """As `FileStore.create`."""
        temporary = self._temporary(name)
        path = self._path(name)
        try:
            try:
                self._write(temporary, content)
                self._rename(temporary, path, is_replacing=False)
            except (FileExistsError, FileNotFoundError):
                # Taken; or a clean-up has removed what it took for a leftover.
                found = self.read(name)
                if found is None:
                    raise
                return found == content
        finally:
            with suppress(FileNotFoundError):
                self._ask(name, lambda: self._system.delete(temporary, False))
        return True

    def make_directory(self, directory: str) -> None:
        """As `FileStore.make_directory`."""
        self._ask(directory, lambda: self._system.mkdirs(self._path(directory)))

    def flush(self, names: Iterable[str]) -> None:
        """As `FileStore.flush`: several data nodes have what is written."""

    def flush_tree(self, directory: str) -> None:
        """As `FileStore.flush_tree`: several data nodes have what is written."""

    def delete(self, name: str) -> None:
        """As `FileStore.delete`."""
        self._ask(name, lambda: self._system.delete(self._path(name), False))

    def delete_tree(self, directory: str) -> None:
        """As `FileStore.delete_tree`."""
        self._ask(directory, lambda: self._system.delete(self._path(directory), True))

    def delete_empty(self, directory: str) -> None:
        """As `FileStore.delete_empty`: the name node removes only what is empty."""
        for each in innermost_first(directory):
            try:
                self._ask(each, partial(self._system.delete, self._path(each), False))
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                return

    def replace(self, name: str, content: bytes) -> None:
        """As `FileStore.replace`."""
        temporary = self._temporary(name)
        self._write(temporary, content)
        self._rename(temporary, self._path(name), is_replacing=True)

    def move(self, source: str, target: str) -> None:
        """As `FileStore.move`."""
        name, new_name = self._path(source), self._path(target)
        while True:
            self.make_directory(PurePosixPath(target).parent.as_posix())
            try:
                self._rename(name, new_name, is_replacing=False)
            except FileNotFoundError:
                if not self._ask(source, lambda: self._system.exists(name)):
                    raise
                continue  # the directory was empty, and somebody else has removed it
            return

    def _path(self, name: str) -> Any:
        if name in ("", "."):
            return self._root
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _temporary(self, name: str) -> Any:
        path = PurePosixPath(name)
        return self._path(str(path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")))

    def _write(self, path: Any, content: bytes) -> None:
        def run() -> None:
            stream = self._system.create(path, False)
            try:
                stream.write(bytearray(content))
                stream.hsync()
            finally:
                stream.close()

        self._ask("", run)

    def _rename(self, source: Any, target: Any, is_replacing: bool) -> None:
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE if is_replacing else rename.NONE
        self._ask("", lambda: self._context.rename(source, target, options))

    def _ask(self, name: str, request: Callable[[], Result]) -> Result:
        """Make a request; Java's exceptions become Python's."""
        try:
            return request()
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getName().rpartition(".")[2]
            text = (error.java_exception.getMessage() or kind).partition("\n")[0]
            if kind == "FileNotFoundException":
                raise FileNotFoundError(f"{self.place(name)} is missing: {text}") from None
            if kind == "FileAlreadyExistsException":
                raise FileExistsError(f"{self.place(name)}: {text}") from None
            if kind == "PathIsNotEmptyDirectoryException":
                raise OSError(errno.ENOTEMPTY, f"{self.place(name)}: {text}") from None
            raise LoadTargetError(f"{self.place(name)}: {kind}: {printable(text, 300)}") from None
