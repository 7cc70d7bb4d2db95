"""Several processes of a mirror share the work; what one leaves behind others take over."""

import signal
import threading

import pytest
from mirror_clusters import Clusters, eventually, mirror_status


def test_others_take_over_what_a_killed_process_had(clusters: Clusters) -> None:
    source = clusters.cluster("source", num_partitions=6)
    target = clusters.cluster("target", num_partitions=6)

    def send(first: int) -> None:
        for partition in range(6):
            source.send("clicks", [b"%d" % n for n in range(first, first + 100)], partition)

    send(0)
    mirrors = [clusters.mirror(source, target) for _ in range(3)]

    def shares() -> dict[int, int]:
        return {each["pid"]: each["count"] for each in mirror_status(target)}

    eventually(lambda: list(shares().values()) == [2, 2, 2], "they do not share the work")
    eventually(lambda: target.count("clicks", 6) == 600)
    mirrors[1].kill()
    send(100)
    eventually(lambda: target.count("clicks", 6) == 1200)
    eventually(lambda: sorted(shares().values()) == [3, 3])
    assert mirrors[1].process.pid not in shares()
    mirrors[1].start()
    eventually(lambda: list(shares().values()) == [2, 2, 2])
    send(200)
    eventually(lambda: target.count("clicks", 6) == 1800)
    for partition in range(6):
        assert target.payloads("clicks", partition) == [b"%d" % n for n in range(300)]


@pytest.mark.nightly
def test_a_process_that_slept_repeats_nothing(clusters: Clusters) -> None:
    """While it slept others took over; what it had on its way then is not stored a second time."""
    source, target = clusters.cluster("source"), clusters.cluster("target")
    mirrors = [clusters.mirror(source, target) for _ in range(2)]
    eventually(lambda: len(mirror_status(target)) == 2)
    stop, sent = threading.Event(), [0]

    def send() -> None:
        while not stop.is_set():
            numbers = range(sent[0], sent[0] + 100)
            source.send("clicks", [b"%d" % n for n in numbers], partition=0)
            source.send("clicks", [b"%d" % n for n in numbers], partition=1)
            sent[0] += 100
            stop.wait(0.02)  # the mirrors' turn

    sending = threading.Thread(target=send)
    sending.start()
    try:
        eventually(lambda: sorted(each["count"] for each in mirror_status(target)) == [1, 1])
        for mirror in mirrors:
            mirror.process.send_signal(signal.SIGSTOP)
            eventually(lambda: [each["count"] for each in mirror_status(target)] == [2])
            mirror.process.send_signal(signal.SIGCONT)
            eventually(lambda: sorted(each["count"] for each in mirror_status(target)) == [1, 1])
    finally:
        stop.set()
        sending.join()
    eventually(lambda: target.count("clicks") == 2 * sent[0])
    for partition in range(2):
        assert target.payloads("clicks", partition) == [b"%d" % n for n in range(sent[0])]
