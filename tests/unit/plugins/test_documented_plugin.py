"""The third-party plugin that docs/plugins.md shows, installed as its reader would install it."""

import re
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from hermes.errors import PluginError
from hermes.interfaces import IRetentionPolicy, RetentionSettings, SegmentInfo
from hermes.plugins import available, load_plugin

DOCUMENT = Path(__file__).parents[3] / "docs" / "plugins.md"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the document's module and its package's metadata on the path."""
    text = DOCUMENT.read_text(encoding="utf-8")
    code = re.search(r"```python test\n(.*?)```", text, re.DOTALL)
    package = re.search(r"```ini\n(.*?)```", text, re.DOTALL)
    assert code
    assert package
    parser = ConfigParser(delimiters=("=",))
    parser.read_string(package[1])
    name, version = parser["metadata"]["name"], parser["metadata"]["version"]
    metadata = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    entries = parser["options.entry_points"]["hermes.retention"]
    (metadata / "entry_points.txt").write_text(f"[hermes.retention]{entries}\n", encoding="utf-8")
    module = parser["options"]["py_modules"]
    (tmp_path / f"{module}.py").write_text(code[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.usefixtures("installed")
def test_it_is_found_and_works() -> None:
    assert "keep-newest" in available("hermes.retention")
    settings = RetentionSettings(options={"segments": 2})
    policy = load_plugin("hermes.retention", "keep-newest", IRetentionPolicy, settings)
    segments = tuple(SegmentInfo(n, 1, 0, n == 4) for n in range(5))
    assert policy.expired(segments, 0) == 3
    assert policy.expired(segments[-1:], 0) == 0


@pytest.mark.usefixtures("installed")
def test_its_mistakes_read_as_the_document_says() -> None:
    wrong = RetentionSettings(options={"segments": 0})
    shown = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for name in ("keep-newest", "keep-newst"):
        with pytest.raises(PluginError) as caught:
            load_plugin("hermes.retention", name, IRetentionPolicy, wrong)
        assert str(caught.value) in shown
