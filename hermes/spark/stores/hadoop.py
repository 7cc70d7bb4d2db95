"""HDFS, by the client that Spark comes with.

A record is written under another name, flushed to the disks of the data nodes, and renamed: the
name node renames to a free name only, in one step. `create(path, overwrite=False)` alone would give
the name before there is content, and a writer that is killed would leave it empty.
"""

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from hermes.errors import LoadTargetError
from hermes.quoting import printable
from hermes.spark.file_system import temporary_name
from hermes.spark.stores.remote import RemoteStore
from hermes.spark.stores.store import StoredFile, innermost_first

Result = TypeVar("Result")

_ADDRESS: Final = re.compile(r"hdfs://([^/?#@]*)(/[^?#]*?)/*")


class HadoopStore(RemoteStore):
    """A directory of HDFS. Without a host it is the cluster's that Spark is set up for."""

    def __init__(self, address: str, spark: Any) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None or any(part in (".", "..") for part in found[2].split("/")):
            raise LoadTargetError(f"{address}: expected hdfs://HOST:PORT/DIRECTORY")
        super().__init__(address)
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

    def url(self, name: str = "") -> str:
        return str(self._path(name).toString())

    def delta_table(self) -> tuple[str, dict[str, str]]:
        raise LoadTargetError(
            f"{self.address}: Delta tables are kept in directories or on S3, not on HDFS: choose "
            "another address, or load as Parquet"
        )

    def read(self, name: str) -> bytes | None:
        try:
            with self.open(name) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def size_bytes(self, name: str) -> int:
        path = self._path(name)
        return int(self._ask(name, lambda: self._system.getFileStatus(path).getLen()))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        def run() -> bytes:
            stream = self._system.open(self._path(name))
            try:
                stream.seek(start)
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream, length))
            finally:
                stream.close()

        return self._ask(name, run)

    def names(self, directory: str = "", after: str = "") -> list[str]:
        path = self._path(directory)
        try:
            statuses = self._ask(directory, lambda: self._system.listStatus(path))
        except FileNotFoundError:
            return []
        if len(statuses) == 1 and statuses[0].getPath().equals(path):
            raise NotADirectoryError(f"{self.place(directory)} is not a directory")
        return sorted(name for each in statuses if (name := each.getPath().getName()) > after)

    def walk(self, directory: str = "") -> list[StoredFile]:

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
        # Nothing to check: every name node renames to free names only.
        for each in ("", *directories):
            self.make_directory(each)

    def create(self, name: str, content: bytes) -> bool:
        temporary = self._path(str(temporary_name(PurePosixPath(name))))
        try:
            try:
                self._write(temporary, content)
                self._rename(temporary, self._path(name))
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
        self._ask(directory, lambda: self._system.mkdirs(self._path(directory)))

    def delete(self, name: str) -> None:
        self._ask(name, lambda: self._system.delete(self._path(name), False))

    def delete_tree(self, directory: str) -> None:
        self._ask(directory, lambda: self._system.delete(self._path(directory), True))

    def delete_empty(self, directory: str) -> None:
        for each in innermost_first(directory):
            try:
                self._ask(each, partial(self._system.delete, self._path(each), False))
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                return

    def move(self, source: str, target: str) -> None:
        name, new_name = self._path(source), self._path(target)
        while True:
            self.make_directory(PurePosixPath(target).parent.as_posix())
            try:
                self._rename(name, new_name)
            except FileNotFoundError:
                if not self._ask(source, lambda: self._system.exists(name)):
                    raise
                continue  # the directory was empty, and somebody else has removed it
            return

    def _path(self, name: str) -> Any:
        if name in ("", "."):
            return self._root
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _write(self, path: Any, content: bytes) -> None:
        def run() -> None:
            stream = self._system.create(path, False)
            try:
                stream.write(bytearray(content))
                stream.hsync()
            finally:
                stream.close()

        self._ask("", run)

    def _rename(self, source: Any, target: Any) -> None:
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.NONE
        self._ask("", lambda: self._context.rename(source, target, options))

    def _ask(self, name: str, request: Callable[[], Result]) -> Result:
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
