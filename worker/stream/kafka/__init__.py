"""Everything that speaks to Kafka; no other folder imports the Kafka client."""

from worker.stream.kafka.groups import reach_of, set_offsets
from worker.stream.kafka.session import Assigned, Polled, Session
from worker.stream.kafka.slots import Slot
from worker.stream.kafka.topics import TopicPlan, ensure_topics, kept_too_shortly, largest_messages

__all__ = [
    "Assigned",
    "Polled",
    "Session",
    "Slot",
    "TopicPlan",
    "ensure_topics",
    "kept_too_shortly",
    "largest_messages",
    "reach_of",
    "set_offsets",
]
