"""A broker's own registry, from `produce --schema` to `consume`, a group and the console."""

import json
import re
import urllib.request
from pathlib import Path

SCHEMA = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "page", "type": "string"}, {"name": "user", "type": ["null", "string"]}],
}


def test_records_through_a_broker_that_serves_the_registry(
    start_broker, hermes_at, tmp_path: Path
) -> None:
    broker = start_broker(
        http_listen="tcp:0:interface=127.0.0.1",
        coordination="embedded",
        coordination_listen="tcp:0:interface=127.0.0.1",
    )
    (address,) = re.findall(r"HTTP on ([0-9.]+:[0-9]+)", "".join(broker.lines))
    site = f"http://{address}"
    url = f"{site}/registry"
    hermes = hermes_at(broker.port)
    schema = tmp_path / "click.avsc"
    schema.write_text(json.dumps(SCHEMA))
    lines = b'{"page": "/a", "user": "Ann"}\n{"page": "/b", "user": null}\n'
    hermes("produce", "-t", "clicks", "--schema", schema, "--registry", url, stdin=lines)
    shown = hermes("consume", "-t", "clicks", "-e", "--registry", url).stdout
    assert shown == lines
    grouped = hermes("consume", "-g", "g", "-t", "clicks", "-c", 2, "--registry", url).stdout
    assert sorted(grouped.splitlines()) == sorted(lines.splitlines())
    with urllib.request.urlopen(f"{site}/topics/clicks/messages?field=user&q=Ann") as answer:
        page = answer.read().decode()
    assert "&#34;user&#34;: &#34;Ann&#34;" in page
    assert "/b" not in page.partition("<section")[2].partition("</section>")[0]
    worse = {**SCHEMA, "fields": [{"name": "page", "type": "int"}]}
    schema.write_text(json.dumps(worse))
    refused = hermes(
        "produce", "-t", "clicks", "--schema", schema, "--registry", url, stdin=b"{}\n", code=1
    )
    assert b"Click.page: int can't be read from string" in refused.stderr
