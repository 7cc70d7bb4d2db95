"""What can go wrong around a mirror: one clear line each, nothing lost, it goes on by itself."""

import json
import resource
import signal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from click.testing import CliRunner
from mirror_clusters import Clusters, eventually, mirror_status
from server_process import free_port

from hermes.cli import program


def get(address: str, path: str) -> tuple[int, str]:
    """What a mirror process serves: status and body."""
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_a_full_disk_in_the_target_is_waited_for(clusters: Clusters) -> None:
    """The disk is full when no file may grow: `EFBIG` instead of `ENOSPC`, treated alike."""
    source, target = clusters.cluster("source"), clusters.cluster("target", coordination="none")
    source.send("clicks", [b"%03d:" % n + b"x" * 995 for n in range(100)])
    mirror = clusters.mirror(source, target, target={"brokers": f"127.0.0.1:{target.port}"})
    eventually(lambda: target.count("clicks") == 100)
    pid = target.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (120_000, resource.RLIM_INFINITY))
    source.send("clicks", [b"%03d:" % n + b"x" * 995 for n in range(100, 300)])
    line = mirror.wait_for_line("topic 'clicks' partition 0-0")
    assert "retrying" in line
    resource.prlimit(pid, resource.RLIMIT_FSIZE, UNLIMITED)
    eventually(lambda: target.count("clicks") == 300)
    numbers = [int(each[:3]) for each in target.payloads("clicks")]
    assert numbers == list(range(300))
    assert source.payloads("clicks") == target.payloads("clicks")


def test_a_source_that_is_not_there_is_waited_for(clusters: Clusters) -> None:
    source, target = clusters.cluster("source"), clusters.cluster("target")
    source.send("clicks", [b"1"])
    source.kill()
    mirror = clusters.mirror(source, target, http_listen="tcp:0:interface=127.0.0.1")
    mirror.wait_for_line("source far: ZooKeeper at '.*' did not answer")
    (told,) = eventually(lambda: [each for each in mirror_status(target) if each["errors"]])
    assert list(told["errors"]) == ["source far"]
    shown = CliRunner().invoke(program, ["mirror", "status", "-Z", target.connect])
    assert shown.exit_code == 1
    assert "hermes: mirror m: source far: ZooKeeper at" in shown.stderr
    address = told["http"]
    status, ready = get(address, "health/ready")
    assert (status, list(json.loads(ready)["errors"])) == (503, ["source far"])
    source.start()
    eventually(lambda: target.count("clicks") == 1)
    mirror.wait_for_line("source far: works again")
    eventually(lambda: get(address, "health/ready")[0] == 200)
    assert get(address, "health/live")[0] == 200
    assert get(address, "health")[0] == 404
    asked = CliRunner().invoke(program, ["mirror", "ask", address, "--json"])
    assert (asked.exit_code, json.loads(asked.stdout)["messages"]) == (0, 1)
    scraped = get(address, "metrics")[1]
    assert 'hermes_mirror_messages_total{source="far",topic="clicks"} 1\n' in scraped
    assert "process_open_fds" in scraped
    said = [line for line in mirror.lines if "did not answer" in line]
    assert len(said) == 1


def test_what_retention_took_is_said_with_its_range(clusters: Clusters) -> None:
    source, target = clusters.cluster("source", segment_bytes="1KiB"), clusters.cluster("target")
    for n in range(20):
        source.send("clicks", [b"%02d" % n + b"x" * 500])
    mirror = clusters.mirror(source, target)
    eventually(lambda: target.count("clicks") == 20)
    assert mirror.stop() == 0
    for n in range(20, 40):
        source.send("clicks", [b"%02d" % n + b"x" * 500])
    source.stop()
    first, *_ = _keep_last_segments(source.log_dir / "clicks-0", 5)
    source.start()
    mirror.start()
    line = mirror.wait_for_line("clicks.* 0-0.*(lost|deleted|retention)")
    assert str(first) in line
    source.send("clicks", [b"the last"])
    eventually(lambda: target.payloads("clicks")[-1:] == [b"the last"])
    (told,) = eventually(lambda: [each for each in mirror_status(target) if each["lost_bytes"]])
    assert told["lost_bytes"] == first - 20 * 512


def _keep_last_segments(directory: Path, count: int) -> list[int]:
    """Delete older segments, as retention does; the offsets of those that are kept."""
    bases = sorted(int(each.stem) for each in directory.glob("*.kafka"))
    for base in bases[:-count]:
        for each in directory.glob(f"{base:020d}.*"):
            each.unlink()
    return bases[-count:]


def test_wrong_settings_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"

    def said(text: str) -> str:
        path.write_text(text, encoding="utf-8")
        shown = CliRunner().invoke(program, ["mirror", "--config", str(path), "--check"])
        assert shown.exit_code == 1
        (line,) = shown.stderr.splitlines()
        assert line.startswith(f"hermes: {path}: ")
        return line

    good = "name: m\nsources: [{name: far, zookeeper: 'zoo:2181'}]\ntarget: {brokers: 'b:9092'}\n"
    assert "name: missing" in said("target: {brokers: 'b:9092'}")
    assert "did you mean whitelist?" in said(good + "white_list: a\n")
    assert "target" in said(good.replace("'b:9092'", "[]"))
    assert "topic filter: '('" in said(good + "whitelist: (\n")
    path.write_text(good, encoding="utf-8")
    shown = CliRunner().invoke(program, ["mirror", "--config", str(path), "--check"])
    assert (shown.exit_code, shown.stdout) == (0, f"{path} is in order: mirror m\n")
    assert CliRunner().invoke(program, ["mirror"]).exit_code == 2


def test_a_taken_port_is_one_line(clusters: Clusters) -> None:
    source, target = clusters.cluster("source"), clusters.cluster("target")
    endpoint = f"tcp:{target.port}:interface=127.0.0.1"
    mirror = clusters.mirror(source, target, http_listen=endpoint)
    assert mirror.wait() == 1
    (line,) = mirror.lines
    assert line.startswith(f"hermes: http_listen: can't open {endpoint!r}")


def test_its_file_is_read_again(clusters: Clusters) -> None:
    source, target = clusters.cluster("source"), clusters.cluster("target")
    source.send("clicks", [b"1"])
    source.send("views", [b"1"])
    values = {
        "name": "m",
        "sources": [{"name": "far", "zookeeper": source.connect}],
        "target": {"zookeeper": target.connect},
        "http_listen": f"tcp:{free_port()}:interface=127.0.0.1",
    }
    mirror = clusters.mirror(source, target, **values, whitelist="clicks")
    eventually(lambda: target.count("clicks") == 1)
    assert target.count("views") == 0
    mirror.write({**values, "whitelist": "("})
    mirror.process.send_signal(signal.SIGHUP)
    mirror.wait_for_line("its file is not read again, nothing has changed: .*mirror.yaml")
    taken = f"tcp:{target.port}:interface=127.0.0.1"
    mirror.write({**values, "whitelist": "clicks", "http_listen": taken})
    mirror.process.send_signal(signal.SIGHUP)
    mirror.wait_for_line("it goes on with its former settings: http_listen: can't open")
    source.send("clicks", [b"2"])
    eventually(lambda: target.count("clicks") == 2)
    mirror.write({**values, "whitelist": "clicks,views"})
    mirror.process.send_signal(signal.SIGHUP)
    eventually(lambda: target.count("views") == 1)
    assert mirror.stop() == 0
