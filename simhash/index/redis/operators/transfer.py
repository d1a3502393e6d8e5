"""An index out of Redis and into it: the rows of `rows`, read from a live index and stored in an empty one.

Out: marks, journals and the last number are read in one step; then the records up to that number. So what a later page
changed is not in the rows, and a page that the rows do not know is above their marks.

In: the new index takes the generation of the old one. Until the last row it has a name for its generation that no
worker knows, and each step leaves in it how far it came: an import that was ended goes on from there.

Rows say nothing of tables: what was read from an index may be stored in one with others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from simhash.errors import DesignError, IndexMismatch
from simhash.index.interface import FORMAT, MOST_NAME_BYTES, STORED_BYTES, IndexSpec, Partition, Relation
from simhash.index.redis.faults import translated
from simhash.index.redis.layout import OBSERVATION_BYTES, OFFSET_BYTES, Layout, literal, possible_bucket_bits
from simhash.index.redis.operators.filling import Loader, Store, record_row
from simhash.index.redis.operators.inside import Inside
from simhash.index.redis.operators.kept_versions import Kept
from simhash.index.redis.operators.operations import Operations
from simhash.index.redis.operators.takedowns import Found
from simhash.index.redis.server import check_server
from simhash.index.redis.spec import REPLACED_FIELD, fields_in, fields_of, flat, whole_number
from simhash.index.rows import (
    EXPORT_FORMAT,
    AnyRow,
    EndRow,
    IndexRow,
    JournalRow,
    MarkRow,
    RecordRow,
    VersionRow,
)
from simhash.index.urls import UrlDictionary
from simhash.relation.tables import described

_IMPORTING = "importing "
_BEGIN = """
local now = redis.call('HMGET', KEYS[1], 'generation', 'seq')
if (now[1] or '') ~= ARGV[1] or (now[2] or '') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[3], ARGV[4])
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
return 1
"""
"""A script: the meta; its generation and last number as they must be, fields that go (of one that was migrated while
it was empty), and fields and values that come."""


# Out -----------------------------------------------------------------------------------------------------------------


class Archived(Protocol):
    """What an index has beside Redis."""

    def elsewhere(self) -> int:
        """How many records Redis has not."""

    def records(self, last: int) -> Iterator[Found]:
        """Every record of both in rising order of its number, up to `last`."""


def exported(index: Operations, archive: Archived | None = None) -> Iterator[AnyRow]:
    """The rows of an index, with those of its archive."""
    seq, documents, journals = index.moment()
    documents += archive.elsewhere() if archive else 0
    yield index_row(index.layout.spec, index.generation, seq, documents, index.version_bits() or 0)
    records = 0
    for fingerprint, record in (archive or index).records(seq):
        records += 1
        yield record_row(index.layout, fingerprint, record)
    versions = 0
    for kept in index.versions():
        versions += 1
        yield VersionRow(kept.bucket, kept.field.hex(), kept.value.hex())
    rest = [row for partition in sorted(journals) for row in _journal_rows(partition, journals[partition])]
    yield from rest
    marks = sum(isinstance(row, MarkRow) for row in rest)
    yield EndRow(records, marks, len(rest) - marks, versions)


def index_row(spec: IndexSpec, generation: str, seq: int, documents: int, version_bits: int = 0) -> IndexRow:
    """The first row of an index with that spec, in that state."""
    rule = spec.relation
    return IndexRow(
        export=EXPORT_FORMAT,
        format=FORMAT,
        generation=generation,
        profile=dict(spec.profile),
        design=rule.design.describe(),
        reach=rule.reach,
        verifier_reach=rule.verifier_reach,
        verifier_bits=rule.verifier_bits,
        bands=rule.bands,
        bucket_bits=spec.bucket_bits,
        capacity=spec.capacity,
        seq=seq,
        documents=documents,
        urls=spec.urls.text,
        version_bits=version_bits,
    )


def _journal_rows(partition: Partition, fields: Mapping[bytes, bytes]) -> Iterator[MarkRow | JournalRow]:
    mark = 0
    if b"mark" in fields:
        mark = whole_number(fields[b"mark"], f"the mark of {partition.topic}[{partition.number}]")
        yield MarkRow(*partition, mark)
    for field, value in sorted(fields.items()):
        # Those below the mark are only not forgotten yet.
        if len(field) == OFFSET_BYTES and int.from_bytes(field) >= mark:
            observation, answer = value[:OBSERVATION_BYTES], value[OBSERVATION_BYTES:]
            yield JournalRow(*partition, int.from_bytes(field), observation.hex(), answer.hex())


# In ------------------------------------------------------------------------------------------------------------------


def spec_in(row: IndexRow) -> IndexSpec:
    """What the rows behind this one are of.

    Raises:
        IndexMismatch: this program cannot read them, or they are of no index that can be.
    """
    for what, found, wanted in (("export", row.export, EXPORT_FORMAT), ("index", row.format, FORMAT)):
        if found != wanted:
            raise IndexMismatch(f"the rows are of {what} format {found}, this program reads {wanted}")
    try:
        design = described(row.design)
        possible = possible_bucket_bits(design)
    except DesignError as error:
        raise IndexMismatch(f"the first row is of no index that can be: {error}") from error
    if row.bucket_bits not in possible:
        can = f"design {design.name} {possible[0]} to {possible[-1]}"
        raise IndexMismatch(f"the first row has bucket_bits {row.bucket_bits}, {can}")
    rule = Relation(design, row.reach, row.verifier_reach, row.verifier_bits, row.bands)
    try:
        urls = UrlDictionary.of_text(row.urls)
    except ValueError as error:
        raise IndexMismatch(f"the first row is of no index that can be: {error}") from error
    return IndexSpec(row.profile, rule, row.bucket_bits, row.capacity, urls)


def name_of_import(row: IndexRow) -> str:
    """The generation that an index has while these rows are being stored in it."""
    told = msgspec.json.encode(row, order="sorted")  # a spec that was stored has its fields in another order
    return f"{_IMPORTING}{hashlib.blake2b(told, digest_size=8).hexdigest()}"


def resumes(name: str, stored: Mapping[str, str], head: IndexRow) -> bool:
    """Whether a part of the rows behind `head` is in the index called `name`.

    Args:
        stored: what its meta holds; nothing: there is no such index.

    Raises:
        IndexMismatch: it holds something else.
    """
    if stored.get("generation") == name_of_import(head):
        return True
    if stored and (stored.get("seq") != "0" or stored["generation"] != head.generation):
        raise IndexMismatch(f"index {name!r} {_what_is_there(stored, head)}")
    return False


def _what_is_there(stored: Mapping[str, str], head: IndexRow) -> str:
    generation, documents = stored["generation"], stored.get("documents")
    if generation.startswith(_IMPORTING):
        return (
            f"holds {documents} documents of another import or rebuild that was ended: give what that one was given "
            "(file or topics, retention, profile, design, documents) and it goes on, or use another --index-name"
        )
    if generation == head.generation:
        return (
            f"is not empty: it is complete, with {documents} documents, perhaps by an import or a rebuild that was "
            "ended after its last step; to make it once more, use another --index-name"
        )
    return (
        f"is not empty, or was made for something else: it has {documents} documents and generation {generation}, the "
        f"rows {head.generation}: use another --index-name"
    )


def opened_for_import(client: Any, name: str, head: IndexRow) -> Store:
    """The index called `name`, empty or half imported, under the generation that it has meanwhile.

    Args:
        client: a connection; answers as bytes.

    Raises:
        IndexMismatch: it holds something else.
        IndexMisconfigured: the server would drop keys.
    """
    layout = Layout(name, spec_in(head))
    with translated():
        check_server(client)
        while not resumes(name, fields_in(client, layout.meta), head):
            _begin(client, layout, head)
        return Store(Inside(client, layout, name_of_import(head)))


def _begin(client: Any, layout: Layout, head: IndexRow) -> None:
    """Begin to import, unless a page is judged meanwhile, or another import begun: then it is to be looked at again."""
    stored = fields_in(client, layout.meta)
    if resumes(layout.name, stored, head):
        return
    has_journals = next(client.scan_iter(f"{literal(layout.journals_start)}*", count=1000), None) is not None
    if has_journals and fields_in(client, layout.meta) == stored:
        raise IndexMismatch(f"index {layout.name!r} has journals: use another --index-name")
    begun = flat(fields_of(layout.spec) | {"generation": name_of_import(head)})
    known = stored.get("generation", ""), stored.get("seq", "")
    client.eval(_BEGIN, 1, layout.meta, *known, "keys", REPLACED_FIELD, *begun)


def loaded(store: Store, head: IndexRow, rows: Iterable[AnyRow], on_record: Callable[[int], None]) -> EndRow:
    """Store all rows behind `head` in an index that is empty, or into which a part of them was stored before.

    Args:
        on_record: is told the seq of the last record stored, now and then.

    Raises:
        IndexMismatch: the rows are not all there, not in order, too many, or somebody else writes to the index.
    """
    loader, layout = Loader(store), Layout("", spec_in(head))
    if head.version_bits:
        store.keep_versions(head.version_bits)
    stored = store.stored
    counts: Counter[type[AnyRow]] = Counter()
    last = 0
    coming = iter(rows)
    for row in coming:
        if isinstance(row, RecordRow):
            if not last < row.seq <= head.seq:
                raise IndexMismatch(f"record {row.seq} stands behind {last} of {head.seq}: the rows are not in order")
            last = row.seq
            _check_widths(row, layout)
        if isinstance(row, EndRow):
            if next(coming, None) is not None:
                raise IndexMismatch(
                    "rows stand behind the `end` row: are these two files in one? Import the first alone"
                )
            loader.flush()
            if loader.last:
                loader.skip_to(head.seq + 1)
            else:  # no record at all
                store.give_out(head.seq)
            return _complete(row, counts)
        if isinstance(row, IndexRow):
            raise IndexMismatch("a second index begins in the middle of the rows")
        counts[type(row)] += 1
        if not isinstance(row, RecordRow):
            loader.flush()
            _set_position(store, row)
        elif row.seq > stored and loader.add(row):  # an earlier run came as far as `stored`
            on_record(row.seq)
    raise IndexMismatch("the rows end without an `end` row: the file was cut off; export it again")


def _set_position(store: Store, row: MarkRow | JournalRow | VersionRow) -> None:
    if isinstance(row, VersionRow):
        store.set_versions([Kept(row.bucket, bytes.fromhex(row.field), bytes.fromhex(row.value))])
        return
    partition = Partition(row.topic, row.partition)
    if isinstance(row, MarkRow):
        store.set_mark(partition, row.offset)
    else:
        store.set_journal(partition, row.offset, bytes.fromhex(row.observation + row.answer))


def _check_widths(row: RecordRow, layout: Layout) -> None:
    widths = ("fingerprint", row.fingerprint, layout.bits), ("verifier", row.verifier, 8 * layout.verifier_bytes)
    for what, digits, bits in widths:
        if digits is not None and int(digits, 16).bit_length() > bits:
            raise IndexMismatch(f"record {row.seq}: its {what} has more than the {bits} bits of this index")
    if row.fingerprint is None and len(row.digest.partition(":")[2]) < 4 * STORED_BYTES:
        raise IndexMismatch(f"record {row.seq}: it has no fingerprint, and but half of a digest")
    names = row.url, row.id or "", row.fetched_at or ""
    if sum(len(name.encode("utf-8", "surrogatepass")) for name in names) > MOST_NAME_BYTES:
        raise IndexMismatch(f"record {row.seq}: its url, id and time are longer than {MOST_NAME_BYTES:,} bytes")


def _complete(row: EndRow, counts: Counter[type[AnyRow]]) -> EndRow:
    found = EndRow(counts[RecordRow], counts[MarkRow], counts[JournalRow], counts[VersionRow])
    if found != row:
        raise IndexMismatch(f"the rows are not all there: {found} of {row}")
    return found
