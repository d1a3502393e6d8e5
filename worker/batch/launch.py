"""From a request to a batch under way: inputs looked at, the relation chosen, Spark started, and ended after it."""

from __future__ import annotations

import os
from pathlib import Path

from simhash.errors import DesignError
from simhash.index.interface import Relation
from simhash.relation.tables import Design, design_for
from simhash.relation.tables import design as find_design
from simhash.signature.minhash import BAND_BITS
from simhash.signature.profiles import Profile
from worker.batch.engine import Engine, EngineSettings
from worker.batch.job import BatchJob, Relate, run_batch, scratch_in
from worker.batch.preference import field_of
from worker.batch.request import Request, Watch
from worker.batch.results import WRITTEN, BatchSummary
from worker.batch.signing import Signing
from worker.batch.slices import sources
from worker.errors import InputError, SettingsError
from worker.files.locations import check_unread
from worker.index.configured import configured_design, configured_profile
from worker.judging.fingerprinters import page_limits, recipe_for_files
from worker.settings import Settings

BITS = 64
FEW_ENTRIES = 4_000_000
MANY, MANY_K = "8", 3
"""Tables for more entries than that, and the k that they reach: measured by `python -m benchmarks --only batch`."""


def launch(request: Request, watch: Watch) -> BatchSummary:
    """Do what was asked, on a Spark of its own.

    Raises:
        SettingsError: it cannot be done with these settings, or without Spark, Arrow or Java.
        InputError: results of an earlier batch are in the way, or the summary would overwrite an input.
        InputError, Stopped, TaskFailed: see `worker.batch.job.run_batch`.
    """
    batch = batch_of(request)
    check_unread([request.summary], [source.path for source in (*batch.new, *batch.existing)])
    _check_written(request)
    with scratch_in(request.out) as scratch:
        engine = Engine(EngineSettings(request.master, request.memory, scratch))
        try:
            return run_batch(batch, engine, watch, scratch)
        finally:
            engine.close()


def _check_written(request: Request) -> None:
    """Refuse to overwrite what an earlier batch has written: an input never, anything else only where it was asked."""
    read = [os.path.realpath(name) for name in (*request.new, *request.existing)]
    for file in filter(os.path.lexists, (request.out / name for name in WRITTEN)):
        path = Path(os.path.realpath(file))
        if any(path.is_relative_to(name) for name in read):
            raise InputError(f"{file} is an input: writing to it would destroy it")
        if not request.force:
            raise InputError(f"{file} exists: --force overwrites it, another directory keeps it")


def batch_of(request: Request) -> BatchJob:
    """What was asked, looked at: no page is read, and no Spark needed.

    Raises:
        SettingsError: a setting is wrong.
        InputError: an input is not there, or of no kind that is known.
    """
    settings = request.settings
    profile = configured_profile(settings)
    if profile.bits != BITS:
        raise SettingsError(f"profile: a batch compares fingerprints of {BITS} bits, {profile.name} has {profile.bits}")
    relate = relation_for(settings, profile, request.k)
    verifier_bytes = (profile.verifier_bits + BAND_BITS * profile.bands) // 8
    field = field_of(request.keep)
    signing = Signing(recipe_for_files(settings, profile), page_limits(settings), verifier_bytes, field)
    new, existing = sources(request.new), sources(request.existing)
    if tables := [source.name for source in new if source.kind == "tables"]:
        raise InputError(f"{tables[0]} holds tables of what exists: give it with --against")
    asked = (request.clusters, request.max_rejected, request.keep, request.annotate)
    return BatchJob(new, existing, request.out, profile, signing, relate, *asked)


def relation_for(settings: Settings, profile: Profile, k: int | None) -> Relate:
    """The relation that the settings mean.

    The profile's is the index's own, design and all. Of fingerprints alone within k bits every pair is found whatever
    the design, so it can be the fastest for so many entries.

    Raises:
        SettingsError: no such design, or one that does not reach k.
    """
    if k is None:
        design = configured_design(settings, profile)
        relation = Relation(design, profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands)
        return lambda entries: relation
    _bare_design(settings.design, k, 0)  # says what is wrong with it before anything is begun
    return lambda entries: Relation(_bare_design(settings.design, k, entries), k, None)


def _bare_design(name: str, k: int, entries: int) -> Design:
    try:
        if name == "auto":
            return find_design(MANY, BITS) if entries > FEW_ENTRIES and k <= MANY_K else design_for(k, BITS)
        design = find_design(name, BITS)
    except DesignError as error:
        raise SettingsError(f"design: {error}") from error
    if design.k < k:
        raise SettingsError(f"design: {name} guarantees {design.k} bits, not --k {k}")
    return design
