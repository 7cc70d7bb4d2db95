"""What `import hermes` offers, and what it costs."""

import subprocess
import sys

import pytest

import hermes
import hermes.errors


def test_every_public_name_is_there() -> None:
    for name in hermes.__all__:
        assert getattr(hermes, name) is not None
        assert name in dir(hermes)


def test_only_public_names_are_listed() -> None:
    assert set(dir(hermes)) == set(hermes.__all__)


def test_every_error_is_reachable() -> None:
    errors = [
        each
        for each in vars(hermes.errors).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    assert len(errors) > 20
    for error in errors:
        assert getattr(hermes, error.__name__) is error


@pytest.mark.parametrize("name", ["Nothing", "NoSuchError", "client_", "BrokerConnection"])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(hermes, name)


def test_a_broker_does_not_load_the_client() -> None:
    program = "import sys, hermes, hermes.protocol; sys.exit('hermes.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
