"""Read verdicts, and print the URL of each unique page: `python unique_urls.py BROKER [TOPIC]`. Ends with the topic.

A consumer that is to go on subscribes with a group of its own (`KafkaConsumer(topic, group_id="indexer", …)`) and loops
over itself; started again, it goes on where it was. What matters in any language is `isolation.level=read_committed`:
other consumers see verdicts of transactions that were aborted.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition


def verdicts(broker: str, topic: str) -> Iterator[dict[str, Any]]:
    """All verdicts that are committed now, each partition's in order."""
    with KafkaConsumer(bootstrap_servers=broker, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                yield from (json.loads(record.value) for record in records)


if __name__ == "__main__":
    for verdict in verdicts(sys.argv[1], *(sys.argv[2:] or ["verdicts"])):
        if verdict["verdict"] == "unique":
            print(verdict["url"])
