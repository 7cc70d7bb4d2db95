"""The examples of docs/cli.md, run one after the other as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli.md"
BLOCK = re.compile(r"```sh test\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


def test_every_example_does_what_the_document_says(start_broker, tmp_path, access_log):
    directory = tmp_path / "reader"
    directory.mkdir()
    (directory / "access.log").write_bytes(access_log)
    (directory / "broker.yaml").write_text(
        "broker_id: 0\nlog_dir: hermes-data\nlisten: tcp:9092:interface=127.0.0.1\n"
    )
    port = start_broker(
        log_dir=str(directory / "hermes-data"),
        coordination="embedded",
        coordination_listen="tcp:0:interface=127.0.0.1",
    ).port
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HERMES_BROKER": f"127.0.0.1:{port}"}
    examples = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len(examples) > 10
    for script, expected in examples:
        ran = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail"],
            input=script.replace("localhost:9092", f"127.0.0.1:{port}"),
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (script, ran.returncode, ran.stderr) == (script, 0, "")
        if expected:
            assert (script, ran.stdout) == (script, expected)
