"""The metrics have the names and labels that dashboards and alerts are built on."""

from prometheus_client import CollectorRegistry

from simhash.index import Partition
from simhash.signature.profiles import Signature
from tests.exposition import METRICS
from worker.ageing.keeper import AgeingMetrics
from worker.judging.judge import Judged, Prepared, Rejected, StageSeconds
from worker.records.passing import Source
from worker.records.verdict import Match, SourceFields, Verdict
from worker.stream.metrics import Metrics

SOURCE = Source("pages", 0, 1, None)


def metrics():
    return Metrics(CollectorRegistry())


def judged(match=None, candidates=3):
    kind = "duplicate" if match else "unique"
    verdict = Verdict("u", None, kind, match, None, None, "d", 0, "p", None, None, "o", SourceFields(*SOURCE))
    return Judged(verdict, candidates)


def match(kind, distance=0):
    return Match("v", None, distance, kind, False, None, 1)


def value(made, name, **labels):
    return made.registry.get_sample_value(name, labels)


def test_names_kinds_and_labels_are_those_of_the_dashboards():
    made = metrics()
    made.lag({Partition("pages", 0): 1, Partition("pages", 1): 2})
    AgeingMetrics(made.registry)
    found = {}
    for family in made.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        samples = [s for s in family.samples if not s.name.endswith("_created")]
        labels = [{k: v for k, v in s.labels.items() if k != "le"} for s in samples]
        found[name] = (family.type, {",".join(f'{k}="{v}"' for k, v in each.items()) for each in labels})
    assert found.keys() == METRICS.keys()
    for name, (kind, labels) in METRICS.items():
        assert found[name][0] == kind
        assert found[name][1] >= set(labels), name


def test_verdicts_are_counted_by_kind():
    made = metrics()
    made.judged([judged(), judged(match("exact")), judged(match("near", 4)), judged(match("near", 2))])
    assert value(made, "simhash_dedup_pages_total", verdict="unique", kind="") == 1
    assert value(made, "simhash_dedup_pages_total", verdict="duplicate", kind="exact") == 1
    assert value(made, "simhash_dedup_pages_total", verdict="duplicate", kind="near") == 2
    assert value(made, "simhash_dedup_match_distance_bits_sum") == 6
    assert value(made, "simhash_dedup_match_distance_bits_count") == 2
    assert value(made, "simhash_dedup_candidates_sum") == 12


def test_series_are_there_before_the_first_event():
    made = metrics()
    assert value(made, "simhash_dedup_pages_total", verdict="duplicate", kind="near") == 0
    assert value(made, "simhash_dedup_dead_letters_total", stage="extract") == 0
    assert value(made, "simhash_dedup_stage_seconds_count", stage="commit") == 0


def test_stages_batches_lags_and_dead_letters_are_observed():
    made = metrics()
    page = Prepared(SOURCE, b"", "u", None, None, Signature(None, None, "d", 0), StageSeconds(0.1, 0.2, 0.3))
    made.prepared([page, page])
    made.stages["index"].observe(0.1)
    made.rejected([Rejected(SOURCE, "decode", "PageError", "no")])
    made.committed(7, now=123.0)
    made.lag({Partition("pages", 4): 9})
    assert value(made, "simhash_dedup_stage_seconds_count", stage="extract") == 2
    assert value(made, "simhash_dedup_stage_seconds_sum", stage="decode") == 0.2
    assert value(made, "simhash_dedup_stage_seconds_count", stage="index") == 1
    assert value(made, "simhash_dedup_dead_letters_total", stage="decode") == 1
    assert value(made, "simhash_dedup_batch_pages_sum") == 7
    assert value(made, "simhash_dedup_last_commit_timestamp_seconds") == 123
    assert value(made, "simhash_dedup_consumer_lag", topic="pages", partition="4") == 9
    made.lost([Partition("pages", 4)])
    assert value(made, "simhash_dedup_consumer_lag", topic="pages", partition="4") == 0
