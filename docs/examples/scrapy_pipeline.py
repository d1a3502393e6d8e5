"""Scrapy: an item pipeline that feeds the page topic.

    # settings.py
    ITEM_PIPELINES = {"scrapy_pipeline.Pages": 300}
    PAGES_BROKER = "127.0.0.1:9092"
    PAGES_TOPIC = "pages"

    # in a spider
    def parse(self, response):
        yield {"url": response.url, "body": response.body, "content_type": response.headers.get("Content-Type")}

The body goes as the bytes that came: the worker finds the charset. A page is keyed by its URL, so its verdict is too.
"""

import json
import logging
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaProducer

LARGEST = 20 << 20
"""Bytes of a record: a page of 10 MiB, which the worker takes by default, in base64."""


class Pages:
    """Sends each item as a page."""

    def __init__(self, broker: str, topic: str) -> None:
        self.topic = topic
        self.producer = KafkaProducer(
            bootstrap_servers=broker, acks="all", compression_type="gzip", max_request_size=LARGEST
        )

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Pages":
        """Scrapy's way in: the crawler has the settings."""
        return cls(crawler.settings.get("PAGES_BROKER", "127.0.0.1:9092"), crawler.settings.get("PAGES_TOPIC", "pages"))

    def process_item(self, item: Any, spider: Any = None) -> Any:
        """Send an item, and pass it on."""
        page = {
            "url": item["url"],
            "html_base64": b64encode(item["body"]).decode(),
            "content_type": (item.get("content_type") or b"").decode("latin-1") or None,
            "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        sent = self.producer.send(self.topic, key=item["url"].encode(), value=json.dumps(page).encode())
        sent.add_errback(lambda error: logging.error("page %s was not sent: %s", item["url"], error))
        return item

    def close_spider(self, spider: Any = None) -> None:
        """Wait until all is sent."""
        self.producer.flush()
        self.producer.close()
