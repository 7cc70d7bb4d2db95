"""A store in memory: what object stores do, without a server."""

import io
import threading
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO, TypeVar

from hermes.spark.stores import StoredFile

__all__ = ["MemoryStore"]

Result = TypeVar("Result")


class MemoryStore:
    """Objects by name; as `Store`. There are directories only as far as objects are in them.

    Attributes:
        objects: the content of each object.
        times_ms: when it was written.
    """

    path = None

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.times_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def step(self, action: Callable[[], Result]) -> Result:
        """Every operation is one of these: a test can end a program before or after it."""
        with self._lock:
            return action()

    def place(self, name: str = "") -> str:
        return f"memory://{name}"

    def url(self, name: str = "") -> str:
        return f"memory://{name}"

    def read(self, name: str) -> bytes | None:
        return self.step(lambda: self.objects.get(name))

    def spark_settings(self, spark: object) -> dict[str, str]:
        return {}

    def delta_table(self) -> tuple[str, None]:
        raise NotImplementedError("there are no Delta tables in memory")

    def open(self, name: str, size_bytes: int | None = None) -> BinaryIO:
        content = self.read(name)
        if content is None:
            raise FileNotFoundError(self.place(name))
        return io.BytesIO(content)

    def names(self, directory: str = "", after: str = "") -> list[str]:
        prefix = f"{directory}/" if directory else ""
        found = {each.name.removeprefix(prefix).partition("/")[0] for each in self.walk(directory)}
        return sorted(each for each in found if each > after)

    def walk(self, directory: str = "") -> list[StoredFile]:
        prefix = f"{directory}/" if directory else ""
        return self.step(
            lambda: sorted(
                StoredFile(name, len(content), self.times_ms[name])
                for name, content in self.objects.items()
                if name.startswith(prefix)
            )
        )

    def prepare(self, *directories: str) -> None: ...

    def make_directory(self, directory: str) -> None: ...

    def delete_empty(self, directory: str) -> None: ...

    def flush(self, names: Iterable[str]) -> None: ...

    def flush_tree(self, directory: str) -> None: ...

    def create(self, name: str, content: bytes) -> bool:
        def put() -> bool:
            if self.objects.setdefault(name, content) != content:
                return False
            self.times_ms.setdefault(name, int(time.time() * 1000))
            return True

        return self.step(put)

    def move(self, source: str, target: str) -> None:
        content = self.read(source)
        if content is None:
            raise FileNotFoundError(self.place(source))
        self.create(target, content)
        self.delete(source)

    def delete(self, name: str) -> None:
        self.step(lambda: self.objects.pop(name, None))

    def delete_tree(self, directory: str) -> None:
        for each in self.walk(directory):
            self.delete(each.name)
