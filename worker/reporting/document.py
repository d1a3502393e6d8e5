"""The report as one file of HTML that needs nothing else: the template, with the figures in it as compressed JSON."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files

import msgspec

from simhash.explaining import Explanation
from worker.records.verdict import hexadecimal
from worker.reporting.report_data import DuplicateRow, ReportData

MOST_HOSTS, MOST_CLUSTERS, MOST_FEATURES = 1000, 200, 60
LONGEST_TEXT = 40_000
"""Characters of a stretch that are shown."""
TOTALS = ("verdicts", "unique", "exact", "near", "same_url", "better")
_PLACE = "/*DATA*/"


def document(collected: ReportData, explained: Mapping[int, Explanation], title: str) -> str:
    """The report.

    Args:
        explained: the pairs that are shown whole, by the number of the duplicate's verdict.
    """
    data = {
        "title": title,
        "totals": {name: getattr(collected, name) for name in TOTALS},
        "profiles": dict(collected.profiles.most_common()),
        "similarities": collected.similarities,
        "distances": _dense(collected.distances),
        "hosts": _hosts(collected),
        "host_count": len(collected.hosts),
        "clusters": collected.clusters.most_common(MOST_CLUSTERS),
        "rows": [_row(row) for row in collected.rows],
        "pairs": {str(number): _pair(each) for number, each in explained.items()},
    }
    packed = b64encode(gzip.compress(msgspec.json.encode(data), 6, mtime=0)).decode()
    template = (files("worker.reporting") / "report.html").read_text(encoding="utf-8")
    return template.replace(_PLACE, packed, 1)


def _dense(counts: Counter[int]) -> list[int]:
    return [counts[distance] for distance in range(max(counts, default=-1) + 1)]


def _hosts(collected: ReportData) -> list[list[object]]:
    most = sorted(collected.hosts.items(), key=lambda item: (item[1].unique - item[1].pages, item[0]))
    return [[name, host.pages, host.unique, host.exact, host.near] for name, host in most[:MOST_HOSTS]]


def _row(row: DuplicateRow) -> list[object]:
    exact, same = int(row.kind == "exact"), int(row.same_url)
    return [row.number, row.url, row.match_url, row.seq, row.distance, exact, same, row.similarity, row.containment]


def _pair(told: Explanation) -> dict[str, object]:
    return {
        "match": told.match,
        "similarity": round(told.similarity, 4),
        "containment": [round(share, 4) for share in told.containment],
        "distance": [told.distance, told.reach],
        "verifier": [told.verifier_distance, told.verifier_reach],
        "bits": [hexadecimal(each, len(told.sums[0])) for each in told.fingerprints],
        "sums": [[round(value, 2) for value in sums] for sums in told.sums],
        "features": [[each.name, each.a, each.b] for each in told.features[:MOST_FEATURES]],
        "more": max(0, len(told.features) - MOST_FEATURES),
        "parts": [
            [part.a[:LONGEST_TEXT]] if part.kind == "same" else [part.a[:LONGEST_TEXT], part.b[:LONGEST_TEXT]]
            for part in told.differences
        ],
    }
