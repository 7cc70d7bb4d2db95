"""The documentation's site: built strictly and without the net, and it loads nothing from there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as scripts/docs builds it. A link or an anchor that isn't there fails."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["-b", "html", "-c", "docs", "-d", str(directory / "doctrees"), "."]
    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")}
    built = subprocess.run(
        [*command, str(directory / "html")],
        cwd=ROOT,
        env=os.environ | nowhere | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return directory / "html"


def test_every_page_of_the_readme_is_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    (navigation,) = re.findall(r'<div class="sidebar-tree">(.*?)</div>\n', front, re.DOTALL)
    linked = set(re.findall(r'class="reference internal" href="([^"]+)\.html"', navigation))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\.md\)", readme, re.MULTILINE))
    assert len(listed) > 40
    assert listed <= linked
    assert "docs/api/index" in linked
    assert all((site / f"{page}.html").exists() for page in linked)


def test_the_reference_has_what_applications_use(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "docs/api").glob("*.html"))
    for name in (
        "hermes.client.Producer.send",
        "hermes.client.SimpleConsumer.fetch",
        "hermes.client.groups.Consumer.create",
        "hermes.client.retrying.RetryingConsumer.run",
        "hermes.aio.Producer.send",
        "hermes.testing.running_kafka",
        "hermes.interfaces.IRetentionPolicy",
        "hermes.spark.load.load",
        "hermes.errors.NotAuthorizedError",
    ):
        assert f'id="{name}"' in pages, name


def test_it_can_be_searched(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for word in ("sendfil", "rebal", "idempot", "hermes.client.producer"):
        assert word in index.lower(), word


def test_its_pages_load_nothing_from_the_net(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"""<(?:script|img|iframe)[^>]* src=["']([^"']+)""", text)
        loaded += re.findall(r"""<link[^>]* href=["']([^"']+)""", text)
        loaded += re.findall(r"""(?:url\(|@import )["']?([^"')]+)""", text)
        assert [each for each in loaded if re.match(r"(https?:)?//", each)] == [], page
