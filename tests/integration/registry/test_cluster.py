"""Registries of several brokers: one gives out ids, the others forward and follow."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from registry_cluster import RegistryCluster, kill_registries, until


def test_concurrent_registrations_of_a_schema_get_one_id(cluster: RegistryCluster) -> None:
    with ThreadPoolExecutor(30) as threads:
        answers = list(
            threads.map(lambda n: cluster.registered(n % 3, f"subject-{n % 4}", "Click"), range(30))
        )
    assert {each.status for each in answers} == {200}
    assert {each.value["id"] for each in answers} == {1}
    for number in range(3):
        assert cluster.call(number, "GET", "schemas/ids/1").status == 200
        assert len(cluster.call(number, "GET", "subjects").value) == 4
    assert sum(cluster.metric(number, "hermes_registry_leader") for number in range(3)) == 1


def test_what_one_registry_gave_out_is_known_to_all_at_once(cluster: RegistryCluster) -> None:
    for number in range(30):
        writer, reader = number % 3, (number + 1) % 3
        given = cluster.registered(writer, f"s{number}", f"R{number}")
        assert given.status == 200
        read = cluster.call(reader, "GET", f"schemas/ids/{given.value['id']}")
        assert json.loads(read.value["schema"])["name"] == f"R{number}"
        assert cluster.call(writer, "GET", f"subjects/s{number}/versions").value == [1]


def test_no_kill_loses_an_id_or_gives_one_twice(cluster: RegistryCluster) -> None:
    figures = kill_registries(cluster, kills=5, seed=1)
    assert figures["ids"] > 30


def test_without_the_home_reads_go_on_and_writes_say_what_is_wrong(
    cluster: RegistryCluster,
) -> None:
    assert cluster.registered(0, "clicks", "Click").value["id"] == 1
    home = cluster.home()
    others = [number for number in range(3) if number != home]
    for number in others:
        until(lambda each=number: cluster.call(each, "GET", "subjects").value == ["clicks"])  # type: ignore[misc]
    cluster.brokers[home].kill()
    for number in others:
        assert cluster.call(number, "GET", "schemas/ids/1").status == 200
        assert cluster.call(number, "GET", "subjects/clicks/versions").value == [1]
        refused = cluster.register(number, "views", "View")
        assert (refused.status, refused.value["error_code"]) == (500, 50003)
        assert f"broker {home}" in refused.value["message"]
        assert cluster.register(number, "clicks", "Click").value["id"] == 1
    cluster.start(home)
    until(lambda: cluster.register(others[0], "views", "View").status == 200, "a registration")
    for number in range(3):
        assert cluster.call(number, "GET", "subjects/views/versions/1").value["id"] == 2
        assert cluster.call(number, "GET", "subjects").value == ["clicks", "views"]


def test_a_leader_that_stops_in_good_order_is_followed_at_once(cluster: RegistryCluster) -> None:
    until(lambda: cluster.leader() is not None, "a leader")
    leader = cluster.leader()
    assert leader is not None
    cluster.brokers[leader].stop()
    home = (leader + 1) % 3
    assert cluster.registered(home, "clicks", "Click").value["id"] == 1
    cluster.start(leader)
    assert cluster.registered(leader, "views", "View").value["id"] == 2
    assert not [
        line
        for broker in cluster.brokers
        for line in broker.lines
        if "registry" in line and "#warn" in line
    ]


def test_a_leader_that_was_paused_decides_nothing_behind_the_others_backs(
    cluster: RegistryCluster,
) -> None:
    assert cluster.registered(0, "clicks", "Click").value["id"] == 1
    home = cluster.home()
    leaders = [cluster.leader()]

    def is_elsewhere() -> bool:
        if leaders[-1] == home:  # which may be elected again
            cluster.brokers[home].stop()
            cluster.start(home)
        leaders.append(cluster.leader())
        return leaders[-1] not in (None, home)

    until(is_elsewhere, "a leader elsewhere")
    paused = leaders[-1]
    assert paused is not None
    other = next(number for number in range(3) if number not in (home, paused))
    with ThreadPoolExecutor(1) as threads:
        os.kill(cluster.brokers[paused].process.pid, signal.SIGSTOP)
        try:
            asked = threads.submit(cluster.registered, paused, "views", "View")
            assert cluster.registered(other, "orders", "Order").value["id"] == 2
        finally:
            os.kill(cluster.brokers[paused].process.pid, signal.SIGCONT)
        answer = asked.result()
    assert (answer.status, answer.value.get("id")) == (200, 3), answer
    for number in range(3):
        read = cluster.call(number, "GET", "schemas/ids/3")
        assert json.loads(read.value["schema"])["name"] == "View"
