import pytest
from click.testing import CliRunner

from hermes.cli import program


@pytest.fixture
def run():
    """Runs `hermes` with arguments; the result has exit_code, stdout and stderr."""
    runner = CliRunner()

    def invoke(*arguments, **settings):
        return runner.invoke(program, [str(each) for each in arguments], **settings)

    return invoke


@pytest.fixture
def make_segment(tmp_path):
    """Writes bytes as the segment of a partition; returns its path."""

    def make(data, *, base=0, partition="clicks-0", suffix=".kafka"):
        directory = tmp_path / "data" / partition
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{base:020d}{suffix}"
        path.write_bytes(data)
        return path

    return make
