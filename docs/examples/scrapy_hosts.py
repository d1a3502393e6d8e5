"""Scrapy: a downloader middleware that leaves out URLs that never have anything new, as `simhash-dedup hosts` found.

    # settings.py
    DOWNLOADER_MIDDLEWARES = {"scrapy_hosts.Hosts": 300}
    HOSTS_FILE = "hosts.jsonl"         # kept by: simhash-dedup hosts --hosts-topic hosts --follow --out hosts.jsonl

A useless parameter (?sid, ;jsessionid, ?action=diff) is taken out of the URL, and what is left goes back to the
scheduler, which knows whether it was crawled. A URL whose path has a useless shape (/calendar/#/#) is dropped. One in
fifty of both is fetched all the same: so a host that changes is found to have changed.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import xxhash

from worker.hosts import traits_of, without

FETCHED_ALL_THE_SAME = 50

try:
    from scrapy.exceptions import IgnoreRequest
except ImportError:  # to be tried without Scrapy

    class IgnoreRequest(Exception):  # type: ignore[no-redef]
        """As Scrapy has it."""


class Hosts:
    """Looks at each request before it is fetched."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.useless: dict[str, set[str]] = {}
        self._read: tuple[int, int] | None = None

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Hosts":
        """Scrapy's way in: the crawler has the settings."""
        return cls(crawler.settings.get("HOSTS_FILE", "hosts.jsonl"))

    def process_request(self, request: Any, spider: Any = None) -> Any:
        """None: fetch it; another request in its place; or IgnoreRequest."""
        self._look()
        useless = self.useless.get(urlsplit(request.url).hostname or "", set()).intersection(traits_of(request.url))
        if not useless or xxhash.xxh3_64_intdigest(request.url.encode()) % FETCHED_ALL_THE_SAME == 0:
            return None
        if any(trait.startswith("/") for trait in useless):
            raise IgnoreRequest(f"{request.url}: nothing new was found under {', '.join(sorted(useless))}")
        return request.replace(url=without(request.url, useless))

    def _look(self) -> None:
        """Read the file again when it is another one."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return
        if self._read == (status.st_mtime_ns, status.st_ino):
            return
        self._read = (status.st_mtime_ns, status.st_ino)
        hosts = map(json.loads, self.path.read_bytes().splitlines())
        self.useless = {host["host"]: set(host["useless"]) for host in hosts if host["useless"]}
