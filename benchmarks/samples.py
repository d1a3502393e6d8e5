"""What is measured with: real pages, repeated under changed URLs where more are needed, and made-up index entries."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random

import zstandard

from simhash.index import Entry, Partition, Position, Relation
from simhash.signature.minhash import BAND_BITS
from worker.records.passing import RawRecord, Source

SAMPLE = Path(__file__).parents[1] / "samples" / "pages.jsonl.zst"
URL_BYTES = 77
"""Length of a made-up page's URL: the mean of a crawl's."""


def read_pages(path: Path = SAMPLE) -> list[dict[str, str]]:
    """The pages of a JSONL file, plain or .zst, in order."""
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
        return [json.loads(line) for line in io.TextIOWrapper(stream, encoding="utf-8")]


def page_values(pages: list[dict[str, str]], count: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of `count` records: the pages over and over, from the second time on under changed URLs."""
    for number, page in enumerate(islice(cycle(pages), count)):
        again = number // len(pages)
        url = f"{page['url']}?again={again}" if again else page["url"]
        yield url.encode(), json.dumps(page | {"url": url}, ensure_ascii=False).encode()


def with_templates(pages: list[dict[str, str]], templates: int, share: float, count: int) -> Iterator[dict[str, str]]:
    """`count` pages, of which a share is replaced by pages of templates: a template has 29 words, and each of its pages
    shows them in an order of its own."""
    random = Random(29)
    words = [[_word(random) for _ in range(29)] for _ in range(templates)]
    for number, page in enumerate(islice(cycle(pages), count)):
        if random.random() < share:
            text = " ".join(random.sample(own := random.choice(words), len(own)))
            yield {"url": f"https://templates.example/{number}", "html": f"<html><body><p>{text}</p></body></html>"}
        else:
            yield page | {"url": f"{page['url']}?again={number}"}


def raw_records(pages: list[dict[str, str]], count: int) -> list[RawRecord]:
    """The same as a consumer would get them from one partition."""
    values = page_values(pages, count)
    return [RawRecord(Source("pages", 0, n, 0), key, value) for n, (key, value) in enumerate(values)]


def entries(relation: Relation, count: int, first: int, random: Random) -> list[Entry]:
    """Pages with random fingerprints, numbers `first` and up of one partition: practically all are unique."""
    width = relation.verifier_bits + BAND_BITS * relation.bands
    return [
        Entry(
            observation=random.randbytes(16),
            position=Position(Partition("pages", 0), number),
            fingerprint=random.getrandbits(relation.design.bits),
            verifier=None if relation.verifier_reach is None else random.getrandbits(width),
            digest=f"text:{random.getrandbits(128):032x}",
            url=made_up_url(number),
            fetched_at="2026-01-01T00:00:00Z",
        )
        for number in range(first, first + count)
    ]


def made_up_url(number: int) -> str:
    """A URL of `URL_BYTES` bytes, as a crawl has them: a host of some words, a path of some more, numbers in it.

    Four in five are https, two in five have a `www.`; there are no more regularities than that to be packed away.
    """
    random = Random(number)
    scheme = "https" if random.random() < 0.8 else "http"
    host = f"{'www.' if random.random() < 0.4 else ''}{_word(random)}{_word(random)}.{random.choice(_DOMAINS)}"
    path = random.choice(_PATHS).format(_word(random), number, random.randrange(2005, 2027), random.randrange(1, 13))
    start, end = f"{scheme}://{host}/{path}", random.choice(_ENDINGS)
    while len(start) + len(end) < URL_BYTES:
        start += f"-{_word(random)}"
    return start[: URL_BYTES - len(end)] + end


_DOMAINS = ("com", "com", "com", "com", "org", "net", "de", "co.uk", "cn", "jp", "ru", "io")
_PATHS = ("{0}/{1}", "{0}/{2}/{3:02d}/{1}", "{2}/{3:02d}/{0}", "{0}/{0}/{1}", "item/{1}/{0}", "{0}.php?id={1}&t={0}")
_ENDINGS = ("", "/", ".html", ".htm", ".aspx", ".php")
_SYLLABLES = tuple(
    a + b for a in "bcdfghjklmnpqrstvwz" for b in ("a", "e", "i", "o", "u", "ar", "en", "in", "or", "es")
)


def _word(random: Random) -> str:
    return "".join(random.choices(_SYLLABLES, k=random.randrange(1, 5)))
