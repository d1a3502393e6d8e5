"""Everything that speaks to Kafka; no other folder imports the Kafka client."""

from worker.kafka.session import Assigned, Polled, Session
from worker.kafka.slots import Slot
from worker.kafka.topics import TopicPlan, ensure_topics, largest_messages

__all__ = ["Assigned", "Polled", "Session", "Slot", "TopicPlan", "ensure_topics", "largest_messages"]
