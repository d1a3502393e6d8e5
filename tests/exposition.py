"""An hour of the worker's metrics as a Prometheus would have stored it, and a real Prometheus over it.

The samples are made up but have the shape of real ones: two busy workers with two partitions, one idle.
They are written into blocks by promtool, so that nothing has to be scraped and waited for.
"""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deploy.local.processes import Server

# Every metric of the worker, its kind, its labels as an exposition would show them.
METRICS: dict[str, tuple[str, list[str]]] = {
    "simhash_dedup_pages_total": (
        "counter",
        [
            'verdict="unique",kind=""',
            'verdict="duplicate",kind="exact"',
            'verdict="duplicate",kind="near"',
        ],
    ),
    "simhash_dedup_dead_letters_total": ("counter", ['stage="decode"', 'stage="extract"']),
    "simhash_dedup_stage_seconds": (
        "histogram",
        [f'stage="{stage}"' for stage in ("decode", "extract", "fingerprint", "index", "commit")],
    ),
    "simhash_dedup_match_distance_bits": ("histogram", [""]),
    "simhash_dedup_candidates": ("histogram", [""]),
    "simhash_dedup_batch_pages": ("histogram", [""]),
    "simhash_dedup_crowded_pages_total": ("counter", [""]),
    "simhash_dedup_index_documents": ("gauge", [""]),
    "simhash_dedup_consumer_lag": (
        "gauge",
        ['topic="pages",partition="0"', 'topic="pages",partition="1"'],
    ),
    "simhash_dedup_last_commit_timestamp_seconds": ("gauge", [""]),
    "simhash_dedup_archive_pages": ("gauge", [""]),
    "simhash_dedup_archive_segments": ("gauge", [""]),
    "simhash_dedup_retired_pages_total": ("counter", [""]),
    "simhash_dedup_ageing_failures_total": ("counter", [""]),
}
WORKERS = ("a:9108", "b:9108", "idle:9108")
BUCKETS = ("0.5", "1.0", "4.0", "+Inf")

START = 1_700_000_000  # any hour will do; a fixed one needs no clock
SECONDS, STEP = 3600, 15
END = START + SECONDS


class Sample(NamedTuple):
    """One series of an answer: its labels and its value."""

    labels: dict[str, str]
    value: float


class PrometheusServer(Server):
    """A Prometheus on a free port over the blocks in its directory; scrapes nothing."""

    name = "prometheus"

    def prepare(self) -> None:
        (self.directory / "prometheus.yml").write_text("scrape_configs: []\n")

    def command(self) -> list[str]:
        return [
            _program("prometheus"),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'blocks'}",
            f"--web.listen-address={self.address}",
        ]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def query(self, expression: str) -> list[Sample]:
        """The answer to an instant query at the end of the hour; raises when Prometheus refuses it."""
        fields = urllib.parse.urlencode({"query": expression, "time": END})
        with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{fields}", timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        return [Sample(series["metric"], float(series["value"][1])) for series in result]


def sample_blocks(directory: Path) -> None:
    """Write the hour into `directory`/blocks."""
    source = directory / "exposition.txt"
    source.write_text("\n".join([*_exposition(), "# EOF", ""]))
    command = [_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(source)]
    subprocess.run([*command, str(directory / "blocks")], check=True, capture_output=True)


def _exposition() -> Iterator[str]:
    for name, (kind, label_sets) in METRICS.items():
        yield f"# TYPE {name.removesuffix('_total')} {kind}"
        for worker in WORKERS:
            for labels in label_sets:
                common = f'job="simhash-dedup",instance="{worker}"' + ("," + labels if labels else "")
                yield from _series(name, kind, common, busy=worker != "idle:9108")


def _series(name: str, kind: str, labels: str, *, busy: bool) -> Iterator[str]:
    for second in range(0, SECONDS + 1, STEP):
        count = second * 10 if busy else 0
        if kind == "histogram":
            yield from _histogram(name, labels, count, START + second)
        else:
            value = START + second - 3 if name.endswith("timestamp_seconds") and busy else count
            yield f"{name}{{{labels}}} {value} {START + second}"


def _histogram(name: str, labels: str, count: int, moment: int) -> Iterator[str]:
    for share, bound in enumerate(BUCKETS, 1):
        yield f'{name}_bucket{{{labels},le="{bound}"}} {count * share} {moment}'
    yield f"{name}_sum{{{labels}}} {count * 4} {moment}"
    yield f"{name}_count{{{labels}}} {count * len(BUCKETS)} {moment}"


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: run `deploy/local/servers install`"
    return found
