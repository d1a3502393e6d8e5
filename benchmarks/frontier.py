"""What acting on `hosts` saves: a real wiki on loopback is crawled with the middleware of docs/examples and without.

    python -m benchmarks.frontier [--budget 2000]

The site is Trac 1.6 (`peers/trac_site.py`): wiki pages with revisions, diffs and histories, tickets, reports that can
be sorted, queries, and a timeline that goes back one month at a time without end. Two crawlers begin at its front page
and fetch so many URLs, breadth first, each URL once. The pages are judged as the worker does; every 100 pages the file
of hosts is written anew, and the middleware reads it. Told for each budget: how many pages were unique, and how many of
the wiki's pages and tickets, which somebody wrote and would look for, were found.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import tempfile
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from benchmarks import peers
from benchmarks.samples import read_pages
from simhash import MemoryIndex, main_text
from simhash.signature.profiles import DEFAULT
from worker.hosts import Hosts
from worker.judging.judge import Recipe, Rejected, judge, prepare
from worker.records.page import Limits
from worker.records.passing import RawRecord, Source

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "scrapy_hosts.py"
RECIPE = Recipe(DEFAULT, "html", Limits(page=10 << 20, url=8 << 10, key=16 << 10))
WIKI_PAGES, REVISIONS, TICKETS = 240, 4, 60
LOOK_PAGES = 100
_LINK = re.compile(rb"""<a\s[^>]*?href=["']?([^"'\s>]+)""", re.IGNORECASE)


class _Request:
    """What Scrapy hands a middleware, as far as it looks."""

    def __init__(self, url: str) -> None:
        self.url = url

    def replace(self, url: str) -> _Request:
        """The same with another URL."""
        return _Request(url)


@dataclass
class Crawler:
    """One crawl.

    Attributes:
        wanted: the URLs that somebody would look for.
        told: fetched pages, unique ones, wanted ones found, at the end of each part of the budget.
    """

    start: str
    wanted: set[str]
    hosts_file: Path
    middleware: Any = None
    dropped: type[Exception] = ValueError
    index: MemoryIndex = field(default_factory=MemoryIndex)
    hosts: Hosts = field(default_factory=Hosts)
    told: list[tuple[int, int, int]] = field(default_factory=list)

    def crawl(self, budget: int, parts: int) -> None:
        """Fetch so many URLs."""
        waiting, seen = deque([self.start]), {self.start}
        fetched = unique = found = 0
        pages: list[Any] = []
        while waiting and fetched < budget:
            url = self._allowed(waiting.popleft(), seen)
            if url is None:
                continue
            body = _fetched(url)
            fetched += 1
            found += url in self.wanted and body is not None
            if body is not None:
                pages.append(prepare(RawRecord(Source("crawl", 0, fetched, None), url.encode(), body), RECIPE))
                for link in _links(url, body):
                    if link not in seen and link.startswith(self.start):
                        seen.add(link)
                        waiting.append(link)
            if fetched % LOOK_PAGES == 0:
                unique += self._judged(pages)
            if fetched % (budget // parts) == 0:
                self.told.append((fetched, unique, found))

    def _allowed(self, url: str, seen: set[str]) -> str | None:
        """The URL to fetch in its place; None: none, or one that was fetched or waits."""
        if self.middleware is None:
            return url
        try:
            other = self.middleware.process_request(_Request(url))
        except self.dropped:
            return None
        if other is None:
            return url
        if other.url in seen:
            return None
        seen.add(other.url)
        return str(other.url)

    def _judged(self, pages: list[Any]) -> int:
        """How many of the pages are unique; hosts are told."""
        prepared = [page for page in pages if not isinstance(page, Rejected)]
        verdicts = [each.verdict for each in judge(prepared, self.index, DEFAULT)]
        pages.clear()
        self.hosts.add(verdicts)
        self.hosts_file.write_bytes(b"".join(line + b"\n" for line in self.hosts))
        return sum(each.verdict == "unique" for each in verdicts)


def _fetched(url: str) -> bytes | None:
    """The page; None: the site has none there, or what is no HTML."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            body: bytes = answer.read()
            return body if "html" in answer.headers.get("Content-Type", "") else None
    except urllib.error.HTTPError:
        return None


def _links(base: str, body: bytes) -> Iterator[str]:
    for found in _LINK.findall(body):
        try:
            yield urldefrag(urljoin(base, unescape(found.decode("utf-8", "replace")))).url
        except ValueError:
            continue


def _site(random: Random) -> tuple[list[Any], list[Any]]:
    """Wiki pages that link to each other, each in some revisions, and tickets: of pages of the bundled sample."""
    texts = [main_text(page["html"]) for page in read_pages() if "html" in page and page["html"].isascii()]
    words = [text.split() for text in texts if len(text) > 1000]
    names = [f"Page{chr(65 + n // 26)}{chr(97 + n % 26)}Text" for n in range(WIKI_PAGES)]
    pages = []
    for number, name in enumerate(names):
        own = words[number % len(words)]
        start = (number // len(words)) * 397 % max(1, len(own) - 200)
        body = [random.choice(names[:200]) + " " + " ".join(own[start : start + 300]), *_links_to(number, names)]
        revisions = ["\n\n".join(body)]
        for n in range(1, REVISIONS):
            revisions.append(f"{revisions[-1]}\n\nChange {n}: {' '.join(random.sample(own, 12))}.")
        pages.append([name, revisions])
    index = "\n".join(f" * {name}" for name in names[:12])
    pages.insert(0, ["WikiStart", [f"= Contents =\n{index}"]])
    tickets = [[f"Problem {n} with {_some(words, 4, random)}", _some(words, 60, random)] for n in range(TICKETS)]
    return pages, tickets


def _some(words: list[list[str]], count: int, random: Random) -> str:
    return " ".join(random.sample(random.choice(words), count))


def _links_to(number: int, names: list[str]) -> list[str]:
    """Each page names two others, so that all are reached, in nine steps at most."""
    return [names[(2 * number + 1) % len(names)], names[(2 * number + 2) % len(names)]]


def main() -> None:
    """Crawl twice and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=2000, help="URLs that each crawl fetches (default 2000)")
    parser.add_argument("--parts", type=int, default=4, help="lines of the table (default 4)")
    given = parser.parse_args()
    pages, tickets = _site(Random(1))
    with tempfile.TemporaryDirectory(prefix="simhash-dedup-frontier-") as scratch:
        options: dict[str, object] = {"directory": scratch, "pages": pages, "tickets": tickets}
        with peers.asking("trac_site", options, print) as (site, _):
            start = site["url"]
            wanted = {f"{start}wiki/{name}" for name, _ in pages}
            wanted |= {f"{start}ticket/{number}" for number in range(1, len(tickets) + 1)}
            crawls = {}
            for name in ("without", "with"):
                crawls[name] = crawl = Crawler(start, wanted, Path(scratch) / f"{name}.jsonl")
                if name == "with":
                    example = runpy.run_path(str(EXAMPLE))
                    crawl.middleware, crawl.dropped = example["Hosts"](str(crawl.hosts_file)), example["IgnoreRequest"]
                crawl.crawl(given.budget, given.parts)
            _print(crawls, len(wanted))


def _print(crawls: dict[str, Crawler], wanted: int) -> None:
    print(f"{wanted} pages and tickets that somebody wrote")
    print(f"{'middleware':>10} {'fetched':>8} {'unique':>7} {'written ones found':>19}")
    for name, crawl in crawls.items():
        for fetched, unique, found in crawl.told:
            print(f"{name:>10} {fetched:>8,} {unique:>7,} {found:>19,}")
        for host in map(json.loads, crawl.hosts):
            print(f"{name:>10} {urlsplit(crawl.start).hostname}: {host['flags']} {host['useless']}")


if __name__ == "__main__":
    main()
