#!/usr/bin/env python3
"""Makes up the activity of a web site, one event per line: page views, searches, clicks as JSON.

    python examples/activity_events.py 20000 > events.jsonl

The same count and seed give the same lines. Needs nothing but Python.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator

# Monday, 2011-06-13 08:00 UTC, in ms since 1970.
START_MS = 1_307_952_000_000

PAGES = ("/", "/jobs", "/people", "/groups", "/news", "/companies/hermes", "/help", "/settings")
QUERIES = ("log", "publish subscribe", "offset", "winged sandals", "messages in order", "Ὀδύσσεια")
BROWSERS = ("Firefox/4.0.1", "Chrome/12.0.742", "Safari/533.21", "Opera/11.11", "MSIE 9.0")


def events(count: int, seed: int = 2011) -> Iterator[dict[str, object]]:
    """Make up events in the order of their times.

    Args:
        count: how many, >= 0.
        seed: another seed, other events.

    Yields:
        A JSON object each; who searches clicks on a result afterwards, most of the time.
    """
    chance = random.Random(seed)
    time_ms = START_MS
    last_query: dict[str, str] = {}
    for number in range(count):
        time_ms += chance.randint(0, 40)
        member = f"member-{min(int(chance.expovariate(0.002)), 99_999)}"
        event: dict[str, object] = {"time": time_ms, "number": number, "member": member}
        if member in last_query and chance.random() < 0.7:
            query = last_query.pop(member)
            event |= {"type": "click", "query": query, "position": chance.randint(1, 10)}
        elif chance.random() < 0.25:
            last_query[member] = query = chance.choice(QUERIES)
            event |= {"type": "search", "query": query, "results": chance.randint(0, 5000)}
        else:
            page = chance.choices(PAGES, weights=range(len(PAGES), 0, -1))[0]
            event |= {"type": "view", "page": page, "browser": chance.choice(BROWSERS)}
        yield event


def main() -> None:
    """Write events to standard output."""
    parser = argparse.ArgumentParser(description="Makes up activity events, a JSON object a line.")
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=2011)
    options = parser.parse_args()
    for event in events(options.count, options.seed):
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.buffer.write(line.encode() + b"\n")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # Whoever reads has enough; keep the interpreter from flushing into the closed pipe.
        sys.stdout = None
        sys.exit(0)
