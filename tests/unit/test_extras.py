"""What is said when a package is missing, too old, or too new."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest

from hermes.config.broker import BrokerConfig
from hermes.config.listeners import ListenerConfig
from hermes.errors import ConfigError
from hermes.extras import extra_with, install_command, outdated_requirements
from hermes.server.checks import check_startable

ROOT = Path(__file__).parents[2]

Install = Callable[[str, str], Path]


def test_the_command_names_the_packages_which_every_index_has() -> None:
    assert install_command("msgpack") == "pip install 'msgpack>=1.0'"
    pip, install, *packages = shlex.split(install_command("spark", "delta"))
    assert (pip, install) == ("pip", "install")
    names = [re.match(r"[\w-]+", each)[0] for each in packages]
    assert names == ["pyspark", "pyarrow", "pandas", "deltalake"]


def test_an_extra_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match="hermes-log has no extra 'kafak'"):
        install_command("kafak")


def test_without_metadata_the_extra_is_named() -> None:
    assert install_command("a", "b", distribution="acme") == "pip install 'acme[a,b]'"
    assert extra_with("msgpack", "acme") is None


@pytest.mark.parametrize(("package", "extra"), [("kio", "kafka"), ("MsgPack", "msgpack")])
def test_a_package_is_found_in_its_extra(package: str, extra: str) -> None:
    assert extra_with(package, "hermes-log") == extra


def test_all_that_the_code_asks_for_is_declared() -> None:
    parser = ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    asked = {
        name
        for place in ("hermes", "bench")
        for path in (ROOT / place).rglob("*.py")
        for call in re.findall(r"install_command\(([^)]*)\)", path.read_text(encoding="utf-8"))
        for name in re.findall(r"'([\w-]+)'", call)
    }
    assert {"kafka", "spark", "avro"} <= asked
    assert asked <= set(parser["options.extras_require"])


def test_what_is_installed_here_will_do() -> None:
    for extra in ("", "avro", "kafka", "msgpack"):
        assert outdated_requirements(extra) == []


@pytest.mark.parametrize("version", ["22.10.0", "24.3.0rc1", "1"])
def test_what_is_too_old(installed: Install, version: str) -> None:
    installed("twisted", version)
    (text,) = outdated_requirements()
    assert text.startswith(f"Twisted {version} is installed, Hermes needs Twisted>=")
    assert "pip install 'Twisted>=" in text


@pytest.mark.parametrize("version", ["24.7", "24.7.0", "24.7.0.post1", "24.11", "100.0.0"])
def test_what_is_new_enough(installed: Install, version: str) -> None:
    installed("twisted", version)
    assert outdated_requirements() == []


def test_an_extra_has_bounds_of_its_own(installed: Install) -> None:
    installed("kio", "0.6.4")
    assert outdated_requirements() == []
    assert [text.partition(" is installed")[0] for text in outdated_requirements("kafka")] == [
        "kio 0.6.4"
    ]
    installed("pandas", "3.0.1")
    assert any("Hermes needs pandas<3" in text for text in outdated_requirements("spark"))


def test_a_broker_with_a_package_of_kafka_that_is_too_old_does_not_start(
    installed: Install, tmp_path: Path
) -> None:
    installed("kio", "0.6.4")
    listener = ListenerConfig("tcp:0:interface=127.0.0.1")
    config = BrokerConfig(broker_id=1, log_dir=tmp_path, kafka_listen=(listener,))
    with pytest.raises(ConfigError, match=r"kio 0\.6\.4 is installed"):
        check_startable(config)


def test_twistd_does_not_start_with_an_old_twisted(installed: Install, tmp_path: Path) -> None:
    older = installed("twisted", "22.10.0")
    twistd = Path(sys.executable).with_name("twistd")
    ended = subprocess.run(
        [twistd, "-n", "--pidfile=", "hermes", "--config", "broker.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(older)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("hermes: Twisted 22.10.0 is installed, Hermes needs Twisted>=")
    assert ended.stderr.count("\n") == 1


EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").rglob("*.py")
    if re.search(r"^ *(from|import) pyspark", path.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_without_its_extra_says_what_to_install(example: Path, tmp_path: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')\n"
    (tmp_path / "pyspark.py").write_text(missing, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr == (
        f"No module named 'pyspark'; this needs Spark: {install_command('spark')}\n"
    )
