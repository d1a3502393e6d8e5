"""Batches on a real Spark, as the tests ask for them; their inputs, and what must come out."""

import json
import os
import threading
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from simhash.archive import BuildPlan, Effort, Holding, Portion, build
from simhash.archive.lookup.opened import verifier_bytes
from worker.batch.job import run_batch, scratch_in
from worker.batch.launch import batch_of
from worker.batch.request import Request, Watch
from worker.cli.main import commands
from worker.errors import TooFewJudged
from worker.settings import load

FINGERPRINTS = 3000


def run(engine, directory, new, existing=(), out="out", watch=None, **options):
    """Run a batch; its results are in `directory / out`, and nothing else is."""
    settings = load(options.pop("settings", {}), None, {"documents": 1_000_000})
    request = Request(tuple(map(str, new)), tuple(map(str, existing)), directory / out, settings, **options)
    with scratch_in(request.out) as scratch:
        summary = run_batch(batch_of(request), engine, watch or Watch(threading.Event()), scratch)
    assert sorted(os.listdir(request.out)) == sorted(
        ["verdicts.jsonl", "verdicts.parquet", "rejected.jsonl"]
        + (["clusters.jsonl"] if request.clusters else [])
        + ([f"annotated.{request.annotate}"] if request.annotate else [])
    )
    return summary


def file_mode(out, *inputs):
    """Judge with `simhash-dedup file`; the bytes of its verdicts."""
    done = CliRunner().invoke(commands, ["file", *map(str, inputs), "--out", str(out), "-q", "--processes", "1"])
    assert done.exit_code == 0 or isinstance(done.exception, TooFewJudged), done.output
    return out.read_bytes()


def differing(path, expected):
    """The first lines in which a file is not what is expected: of large ones pytest would show all."""
    pairs = zip_longest(path.read_bytes().splitlines(), expected.splitlines())
    return [(number, *pair) for number, pair in enumerate(pairs) if pair[0] != pair[1]][:3]


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def written(path, values):
    path.write_bytes(b"\n".join(values) + b"\n")
    return path


def fingerprints(path, values, **columns):
    pq.write_table(pa.table({"fingerprint": pa.array(values)} | columns), path, row_group_size=700)
    return path


def near_values(seed, of=None):
    """Fingerprints, of which a tenth are within 5 bits of others; with `of`: of those."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 1 << 64, FINGERPRINTS, dtype=np.uint64)
    near = random.choice(FINGERPRINTS, FINGERPRINTS // 10, replace=False)
    others = (values if of is None else of)[random.choice(FINGERPRINTS, len(near))]
    for place, other in zip(near, others, strict=True):
        bits = random.choice(64, random.integers(0, 6), replace=False)
        values[place] = other ^ np.bitwise_or.reduce(np.uint64(1) << bits.astype(np.uint64), initial=np.uint64(0))
    return values


def greedily(new, old, k):
    """For each new value: its match's place among the old, or among the new, or None."""
    answers, survivors = [], []
    for place, value in enumerate(new):
        matches = np.flatnonzero(np.bitwise_count(old ^ value) <= k)
        if len(matches):
            answers.append(("old", int(matches[0])))
            continue
        earlier = np.flatnonzero(np.bitwise_count(new[survivors] ^ value) <= k) if survivors else []
        answers.append(("new", survivors[earlier[0]]) if len(earlier) else None)
        if not len(earlier):
            survivors.append(place)
    return answers


@dataclass(frozen=True)
class Stored:
    """What tables are built from: all of it at once."""

    batch: Portion

    def batches(self, skip):
        if not skip:
            yield self.batch


def tables(out, batch, relation, recipe=None):
    holding = Holding(64, recipe is not None, verifier_bytes(relation), relation.bands)
    effort = Effort(memory=1 << 20, threads=1, block_keys=8)
    build(out, Stored(batch), BuildPlan(recipe, holding, lambda _: relation, "job"), effort, lambda *_: None)
    return out
