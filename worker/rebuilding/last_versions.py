"""The last versions of URLs, from the verdicts read once more: each takes the place of the one before it.

A URL's pages come from one partition, where its key decides, and so in their order. Left out are verdicts of another
profile, what is beyond its age, and what was written before its URL was taken down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from simhash.index.interface import DAY_MS, day_of
from simhash.index.redis.layout import DAY_BYTES
from simhash.index.redis.operators.filling import Store
from simhash.index.redis.operators.kept_versions import Kept, first_bits
from simhash.index.rows import Takedown
from simhash.index.versions import packed, url_hash
from simhash.signature.profiles import Profile, Signature
from worker.rebuilding.verdict_sources import Answered, CommittedVerdict
from worker.records.runs import runs
from worker.records.verdict import Verdict

AT_ONCE = 500


def keep_versions(
    store: Store, answered: Iterable[Answered], profile: Profile, takedowns: Sequence[Takedown], oldest_ms: int
) -> int:
    """Keep, in an index being filled, what verdicts say of each URL's last page; how many verdicts that took."""
    bits = first_bits(store.layout.spec)
    store.keep_versions(bits)
    gone: dict[str, int] = {}
    for each in takedowns:
        gone[each.url] = max(each.at, gone.get(each.url, -1))
    told = (
        each
        for each in answered
        if isinstance(each, CommittedVerdict)
        and each.verdict.profile == profile.label
        and each.written_ms >= oldest_ms - DAY_MS
        and each.written_ms > gone.get(each.verdict.url, -1)
    )
    count = 0
    for some in runs(_kept(store, told, profile, bits), lambda _: 1, AT_ONCE):
        store.set_versions(some)
        count += len(some)
    return count


def _kept(store: Store, told: Iterable[CommittedVerdict], profile: Profile, bits: int) -> Iterator[Kept]:
    start = store.layout.versions_start
    for verdict, written_ms in told:
        key, field = store.layout.version(url_hash(verdict.url), bits)
        version = packed(_signature(verdict), bytes.fromhex(verdict.observation), verdict.fetched_at, profile)
        yield Kept(key.removeprefix(start), field, day_of(written_ms).to_bytes(DAY_BYTES) + version)


def _signature(verdict: Verdict) -> Signature:
    fingerprint, verifier = (None if d is None else int(d, 16) for d in (verdict.fingerprint, verdict.verifier))
    return Signature(fingerprint, verifier, verdict.digest, verdict.features)
