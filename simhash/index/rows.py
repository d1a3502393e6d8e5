"""An index in a file: the rows of `index export`, and the rows by which pages are taken down. JSON, one a line.

    index     first: the spec, the generation, and the state at the moment of the export
    record    a representative, in rising order of `seq`
    version   what is kept of a URL's last page
    mark      the committed mark of a partition
    journal   a decision that is not known to be committed
    end       last: how many there were of each, so that a file that was cut off is recognised

Every row names its kind in `row`. Fingerprints, verifiers, observations and answers are hex, most significant first, as
in verdicts; a record's observation and digest are as short as the index keeps them (see `simhash.index.Record`).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from simhash.decoding import Decoder

EXPORT_FORMAT = 1
"""Version of these rows; `format` beside it is that of the index, which a journal's answers depend on."""

TIMES = 1 << 48
"""Times in records, in milliseconds since the epoch, are below it."""

Place = Annotated[int, Meta(ge=0, lt=1 << 48)]
"""A partition, or an offset in it."""
Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]+\Z")]
Observation = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
Digest = Annotated[str, Meta(pattern=r"^(text|raw):([0-9a-f]{16}){1,2}\Z")]


class Row(msgspec.Struct, frozen=True, tag_field="row"):
    """What all rows are."""


class IndexRow(Row, frozen=True, tag="index", omit_defaults=True):
    """What the rows behind it are of.

    Attributes:
        export: `EXPORT_FORMAT`.
        format, generation, profile, k ... capacity: as the index has them; `design` as `Design.describe` gives it;
            `verifier_reach` null: no verifier.
        seq: the last number given. Records, marks and journal are those of one moment.
        documents: how many records there were at that moment.
        urls: the dictionary of its URLs, in base64: journals have records as they are stored.
        version_bits: of the buckets of versions; 0: none are kept.
        source: where the rows are not an export's, what they are made from: only the same goes on where it was ended.
    """

    export: int
    format: int
    generation: str
    profile: dict[str, Any]
    design: dict[str, Any]
    reach: int
    verifier_reach: int | None
    verifier_bits: Annotated[int, Meta(ge=0, le=4096)]
    bands: int
    bucket_bits: int
    capacity: int
    seq: int
    documents: int
    urls: str
    version_bits: Annotated[int, Meta(ge=0, le=32)] = 0
    source: str = ""


class RecordRow(Row, frozen=True, tag="record"):
    """A representative.

    Attributes:
        fingerprint, verifier: hex; null for a page that has a digest only. Behind the verifier's own bits come its
            band keys, as in verdicts.
        features: as the index keeps it; null: it does not know.
        observation: 16 hex digits, the first of the 32 in the page's verdict.
        digest: "text:" or "raw:" and 16 hex digits, the first of the 32; all 32 where there is no fingerprint.
    """

    seq: Annotated[int, Meta(ge=1, lt=1 << 48)]
    inserted_ms: Annotated[int, Meta(ge=0, lt=TIMES)]
    fingerprint: Hex | None
    verifier: Hex | None
    digest: Digest
    observation: Observation
    url: str
    id: str | None
    fetched_at: str | None
    features: Annotated[int, Meta(ge=0, lt=1 << 48)] | None = None


class VersionRow(Row, frozen=True, tag="version"):
    """What is kept of a URL's last page, as it lies in Redis: bucket and field by its hash; hex, all of it.

    They are read behind the records, each as it is then: pages that come meanwhile may have changed them.
    """

    bucket: Hex
    field: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
    value: Annotated[str, Meta(pattern=r"^([0-9a-f]{2}){17,64}\Z")]


class MarkRow(Row, frozen=True, tag="mark"):
    """The offset before which all verdicts of a partition are committed."""

    topic: str
    partition: Place
    offset: Place


class JournalRow(Row, frozen=True, tag="journal"):
    """The decision on what stands at an offset: `observation` in full, `answer` as the index stores it."""

    topic: str
    partition: Place
    offset: Place
    observation: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    answer: Annotated[str, Meta(pattern=r"^([0-9a-f]{2}){11,}\Z")]


class EndRow(Row, frozen=True, tag="end", omit_defaults=True):
    """How many rows there were of each kind."""

    records: int
    marks: int
    journal: int
    versions: int = 0


AnyRow = IndexRow | RecordRow | VersionRow | MarkRow | JournalRow | EndRow


class Takedown(msgspec.Struct, frozen=True):
    """One record that was removed by an operator: who rebuilds an index from verdicts leaves it out.

    Attributes:
        at: milliseconds since the epoch.
        seq: its number, in the generation it was removed from.
        observation: 16 hex digits, the first of the 32 in its verdict: names the record in every generation.
    """

    url: str
    at: int
    seq: int
    observation: Observation


_encoder = msgspec.json.Encoder()
_rows: Decoder[AnyRow] = Decoder(AnyRow)  # type: ignore[arg-type]  # a union of structs
_takedowns = Decoder(Takedown)


def encoded(row: Row | Takedown) -> bytes:
    """A row as one line, its line end included."""
    return _encoder.encode(row) + b"\n"


def decoded(line: bytes) -> AnyRow:
    """The row of a line of an export.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _rows.decode(line)


def decoded_takedown(line: bytes) -> Takedown:
    """The takedown of a line.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _takedowns.decode(line)
