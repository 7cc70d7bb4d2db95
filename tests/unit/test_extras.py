"""What is said when a package of an extra is missing."""

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest

from hermes.extras import extra_with, install_command

ROOT = Path(__file__).parents[2]


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
