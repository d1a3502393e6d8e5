"""What an operator sees: the Prometheus metrics, by the names that dashboards and alerts are built on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from simhash.index import Partition
from worker.judging.judge import Judged, Prepared, Rejected

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CANDIDATES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
PAGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
BITS = tuple(range(17))
"""As far as the widest of the shipped profiles reaches."""
STAGES = ("decode", "extract", "fingerprint", "index", "commit")
PAGE_STAGES = ("decode", "extract", "fingerprint")
VERDICTS = (("unique", ""), ("duplicate", "exact"), ("duplicate", "near"))


class Metrics:
    """The metrics of one process, in `registry`.

    Attributes:
        stages: of each stage the seconds that it took. One that failed is not told: alerts ask whether anything gets
            through.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._lagging: set[Partition] = set()
        self._pages = Counter(
            "simhash_dedup_pages",
            "Pages judged; kind: exact or near for duplicates, empty for unique pages",
            ["verdict", "kind"],
            registry=registry,
        )
        self._dead_letters = Counter(
            "simhash_dedup_dead_letters", "Records that could not be judged", ["stage"], registry=registry
        )
        self._stage = Histogram(
            "simhash_dedup_stage_seconds",
            "Seconds a page (decode, extract, fingerprint) or a batch (index, commit) spends in a stage",
            ["stage"],
            buckets=SECONDS,
            registry=registry,
        )
        self._distance = Histogram(
            "simhash_dedup_match_distance_bits",
            "Distance of near duplicates to their match",
            buckets=BITS,
            registry=registry,
        )
        self._candidates = Histogram(
            "simhash_dedup_candidates",
            "Stored fingerprints compared for a page, one that several tables bring in each",
            buckets=CANDIDATES,
            registry=registry,
        )
        self._crowded = Counter(
            "simhash_dedup_crowded_pages", "Pages that found a place in the index full", registry=registry
        )
        self._batch = Histogram("simhash_dedup_batch_pages", "Records in a batch", buckets=PAGES, registry=registry)
        self.index_documents = Gauge(
            "simhash_dedup_index_documents",
            "Unique pages in the index",
            multiprocess_mode="livemostrecent",
            registry=registry,
        )
        self._lag = Gauge(
            "simhash_dedup_consumer_lag",
            "Records behind the end of the partition",
            ["topic", "partition"],
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._last_commit = Gauge(
            "simhash_dedup_last_commit_timestamp_seconds",
            "When the last transaction was committed",
            multiprocess_mode="max",
            registry=registry,
        )

        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Have all series from the start: a rate counts its first event, and no event is told from no worker."""
        self._verdicts = {(verdict, kind): self._pages.labels(verdict, kind) for verdict, kind in VERDICTS}
        self.stages = {stage: self._stage.labels(stage) for stage in STAGES}
        for stage in PAGE_STAGES:
            self._dead_letters.labels(stage)

    def prepared(self, pages: Iterable[Prepared]) -> None:
        """Count what preparing took."""
        for page in pages:
            for stage, seconds in zip(PAGE_STAGES, page.seconds, strict=True):
                self.stages[stage].observe(seconds)

    def judged(self, pages: Iterable[Judged]) -> None:
        """Count verdicts."""
        for page in pages:
            match = page.verdict.match
            self._verdicts[page.verdict.verdict, match.kind if match else ""].inc()
            self._candidates.observe(page.candidates)
            self._crowded.inc(page.crowded)
            if match and match.kind == "near":
                self._distance.observe(match.distance)

    def rejected(self, rejections: Iterable[Rejected]) -> None:
        """Count dead letters."""
        for rejection in rejections:
            self._dead_letters.labels(rejection.stage).inc()

    def committed(self, records: int, now: float) -> None:
        """Note a committed batch."""
        self._batch.observe(records)
        self._last_commit.set(now)

    def lag(self, lags: Mapping[Partition, int]) -> None:
        """Set the lag of each partition that is this process's now; no others are."""
        self.lost(self._lagging - lags.keys())
        for partition, lag in lags.items():
            self._lag.labels(partition.topic, str(partition.number)).set(lag)
        self._lagging = set(lags)

    def lost(self, partitions: Iterable[Partition]) -> None:
        """These are other workers' now, and so is their lag."""
        for partition in partitions:
            self._lag.labels(partition.topic, str(partition.number)).set(0)
