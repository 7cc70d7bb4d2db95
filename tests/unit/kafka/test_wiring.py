"""What a broker loads for Kafka's clients: without them nothing, and of kio not before one asks."""

import subprocess
import sys

import pytest

LOADED = "import sys; print(sorted({name.split('.')[0] if name.startswith('kio') else name \
for name in sys.modules if name.startswith(('kio', 'hermes.kafka'))}))"


@pytest.mark.parametrize(
    ("imported", "expected"),
    [
        ("import hermes.tap, hermes.twistd, hermes.testing", "[]"),
        ("import hermes.kafka.wiring", "hermes.kafka.wiring"),
    ],
)
def test_who_has_no_use_for_it_loads_none_of_it(imported: str, expected: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"{imported}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    assert expected in run.stdout
    assert "kio" not in run.stdout
