"""A real S3 server (versitygw) as a process, and what Spark needs for S3."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from fetched_tools import fetched
from planted_secrets import planted
from server_process import DEADLINE_SECONDS, ServerProcess

__all__ = ["BUCKET", "S3Server", "s3a_class_path"]

BUCKET = "loads"
_ACCESS_KEY = "tests"


def has_attributes(path: Path) -> bool:
    """Whether files there can have attributes of their own."""
    try:
        os.setxattr(path, "user.hermes", b"")
    except OSError:
        return False
    return True


def s3a_class_path() -> str:
    """Spark's file system for S3, for `spark.driver.extraClassPath`."""
    return f"{fetched('HERMES_S3A_JARS', 'hadoop-aws-[0-9.]*[0-9]')}/*"


class S3Server(ServerProcess):
    """An S3 server with one bucket, whose objects are files; it keeps them over restarts.

    Args:
        directory: for its files.

    Attributes:
        secret_key: of its only user, planted.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secret_key = planted("s3")
        (directory / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
        (directory / "attributes").mkdir(exist_ok=True)

    def address_of(self, name: str, scheme: str = "s3a") -> str:
        """The address of a prefix in the bucket."""
        return f"{scheme}://{BUCKET}/{name}"

    @property
    def storage(self) -> dict[str, str]:
        """The settings by which it is reached, by Hadoop's names."""
        return {
            "fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "fs.s3a.access.key": _ACCESS_KEY,
            "fs.s3a.secret.key": self.secret_key,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same by AWS' names."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def copy_out(self, name: str, folder: Path) -> Path:
        """Copy the objects below a prefix into a folder, as they are on its disk."""
        source = self.directory / "objects" / BUCKET / name
        shutil.copytree(source, folder / name, dirs_exist_ok=True)
        return folder / name

    def start(self) -> None:
        """Start it, and wait until it serves."""
        here = self.directory.absolute()
        objects = here / "objects"
        # Beside the objects, where a file system has nothing else, attributes aren't written as
        # one with them: a put that meets the end of its directory leaves a name that nobody gets.
        beside = [] if has_attributes(objects) else ["--sidecar", str(here / "attributes")]
        places = ["posix", *beside, str(objects)]
        command = [
            str(fetched("HERMES_VERSITYGW", "versitygw-v*/versitygw")),
            *("--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive", *places),
        ]
        with open(self.directory / "output", "ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "ROOT_ACCESS_KEY_ID": _ACCESS_KEY,
                    "ROOT_SECRET_ACCESS_KEY": self.secret_key,
                },
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._serves():
                return
            time.sleep(0.02)  # between two looks; there is nothing that could tell
        self.kill()
        said = (self.directory / "output").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"the S3 server does not serve:\n{said}")

    def stop(self) -> None:
        """End it; it would wait for connections that clients keep."""
        self.kill()

    def _serves(self) -> bool:
        from http.client import HTTPConnection

        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", f"/{BUCKET}")
            return connection.getresponse().status == 403  # nobody has signed this
        except OSError:
            return False
        finally:
            connection.close()
