"""What a mirror has copied stands in the target's audit, also of one that was killed."""

import json
from collections import Counter

from mirror_clusters import ClusterProcess, Clusters, eventually

from hermes.config.topic import AUDIT_TOPIC


def counted(target: ClusterProcess) -> Counter[str]:
    """Messages by tier and topic, each range once."""
    ranges = {}
    for partition in range(2):
        if target.end(AUDIT_TOPIC, partition) > 0:
            for payload in target.payloads(AUDIT_TOPIC, partition):
                event = json.loads(payload)
                if event["kind"] == "counts":
                    place = event["tier"], event["topic"], event["log"], event["start"]
                    windows = event["windows"].values()
                    ranges[place] = sum(count for each in windows for count, _ in each.values())
    found: Counter[str] = Counter()
    for (tier, topic, *_), count in ranges.items():
        found[f"{tier} {topic}"] += count
    return found


def test_a_mirror_counts_what_it_copies(clusters: Clusters) -> None:
    source, target = clusters.cluster("source"), clusters.cluster("target")
    source.send("clicks", [b"%d" % n for n in range(100)])
    mirror = clusters.mirror(source, target, audit=True)
    eventually(lambda: counted(target) == {"mirror:m clicks": 100})
    mirror.kill()
    source.send("clicks", [b"%d" % n for n in range(50)], partition=1)
    mirror.start()
    eventually(lambda: counted(target) == {"mirror:m clicks": 150})
    assert mirror.stop() == 0
    assert target.count("clicks") == 150
