"""Messages never go round: mirrors in both directions, and in a circle of three clusters."""

from itertools import pairwise

import pytest
from click.testing import CliRunner
from mirror_clusters import ClusterProcess, Clusters, eventually, mirror_status

from hermes.cli import program
from hermes.coordination.origins import add_origins, forget_origins
from hermes.coordination.sessions import Session


def refused(target: ClusterProcess, name: str) -> str:
    """What a mirror that is refused says in the end."""

    def found() -> str:
        told = [each for each in mirror_status(target) if each["mirror"] == name]
        return " ".join(reason for each in told for reason in each["refused"].values())

    return str(eventually(found, "it is not refused"))


@pytest.mark.parametrize("names", ["AB", "ABC"])
def test_the_way_back_is_refused(clusters: Clusters, names: str) -> None:
    made = {name: clusters.cluster(name) for name in names}
    first, last = made[names[0]], made[names[-1]]
    first.send("t", [b"1", b"2"])
    for source, target in pairwise(names):
        clusters.mirror(made[source], made[target], f"{source}{target}")
        eventually(lambda target=target: made[target].count("t") == 2)  # type: ignore[misc]
    back = clusters.mirror(last, first, "back")
    last.send("of-the-last", [b"3"])
    eventually(lambda: first.count("of-the-last") == 1)
    assert "t comes from the target cluster" in refused(first, "back")
    assert "loop" in back.wait_for_line("loop")
    first.send("t", [b"4"])
    eventually(lambda: last.count("t") == 3)
    assert first.payloads("t") == [b"1", b"2", b"4"]
    shown = CliRunner().invoke(program, ["mirror", "origins", "-Z", last.connect])
    rows = [line.split() for line in shown.stdout.splitlines()[1:]]
    assert [row[0] for row in rows if row[0] == "t"] == ["t"] * (len(names) - 1)
    wrong = CliRunner().invoke(program, ["mirror", "status", "-Z", first.connect])
    assert wrong.exit_code == 1
    assert "is refused" in wrong.stderr


def test_a_cluster_is_not_mirrored_into_itself(clusters: Clusters) -> None:
    only = clusters.cluster("A")
    only.send("t", [b"1"])
    mirror = clusters.mirror(only, only)
    assert "the source is the target itself" in refused(only, "m")
    assert mirror.stop() == 0
    assert only.payloads("t") == [b"1"]


def test_a_mirror_is_turned_round(clusters: Clusters) -> None:
    a, b = clusters.cluster("A"), clusters.cluster("B")
    a.send("t", [b"1"])
    there = clusters.mirror(a, b, "there")
    eventually(lambda: b.count("t") == 1)
    assert there.stop() == 0
    back = clusters.mirror(b, a, "back")
    back.wait_for_line("loop")
    forgotten = CliRunner().invoke(program, ["mirror", "origins", "-Z", b.connect, "--forget", "t"])
    assert forgotten.stdout == "forgotten t\n"
    b.send("t", [b"2"])
    eventually(lambda: a.count("t") >= 2)


def test_a_circle_that_is_closed_elsewhere_stops_a_mirror_that_runs(clusters: Clusters) -> None:
    a, b = clusters.cluster("A"), clusters.cluster("B")
    a.send("t", [b"1"])
    mirror = clusters.mirror(a, b)
    eventually(lambda: b.count("t") == 1)
    session = Session(a.connect)
    session.start()
    (told,) = eventually(lambda: [each for each in mirror_status(b) if each["target"]])
    add_origins(session, "t", {told["target"]: "somebody"})
    assert "'somebody'" in refused(b, "m")
    mirror.wait_for_line("loop")
    a.send("t", [b"2"])
    a.send("u", [b"3"])
    eventually(lambda: b.count("u") == 1)
    assert b.payloads("t") == [b"1"]
    assert forget_origins(session, "t")
    session.stop()
    eventually(lambda: b.payloads("t") == [b"1", b"2"])
