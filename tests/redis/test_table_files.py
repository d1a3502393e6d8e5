"""File mode over Parquet and CSV: the verdicts of the same pages as JSONL, and unique pages with all their columns."""

import csv
import json
import tracemalloc
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from simhash.signature.profiles import DEFAULT
from tests.redis.test_files import LIMITS, PAGES, bench_of, lines, run, written
from worker.errors import InputError
from worker.files import summary as summary_module
from worker.files.inputs import open_input
from worker.files.outputs import OutputPaths, Outputs
from worker.judging.fingerprinters import Fingerprinters, PageLimits
from worker.judging.judge import Recipe

ROWS = [json.loads(page) for page in PAGES]
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), metadata={"of": "the field"}),
        ("url", pa.large_string()),
        ("id", pa.string()),
        ("text", pa.dictionary(pa.int32(), pa.string())),
        ("when", pa.timestamp("ns", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("nested", pa.struct([("a", pa.list_(pa.binary()))])),
    ],
    metadata={"huggingface": '{"info": {}}'},
)


def parquet(path, rows=ROWS, group=100):
    full = [
        row
        | {"n": n, "when": datetime(2026, 1, 1, 0, 0, n % 60, 1, UTC), "price": Decimal(n) / 4}
        | {"nested": {"a": [b"\xff", None]} if n % 3 else None}
        for n, row in enumerate(rows)
    ]
    pq.write_table(pa.Table.from_pylist(full, SCHEMA), path, row_group_size=group)
    return path


def csv_file(path, rows=ROWS):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["n", "url", "text", "id", "note"])
        writer.writerows(
            [f"{n:03}", r["url"], r["text"], r["id"], 'a "quote",\nand a line'] for n, r in enumerate(rows)
        )
    return path


def answers(path):
    """What does not depend on where a page came from."""
    return [(v["url"], v["verdict"], v["match"], v["fingerprint"], v["source"]["offset"]) for v in lines(path)]


@pytest.fixture(scope="module")
def pool():
    made = Fingerprinters(Recipe(DEFAULT, "json", LIMITS), 1, PageLimits(60.0))
    yield made
    made.close()


@pytest.mark.parametrize(("name", "write"), [("p.parquet", parquet), ("p.csv", csv_file)])
def test_a_table_gets_the_verdicts_of_the_same_lines_and_its_unique_rows_are_written_whole(pool, tmp_path, name, write):
    first, second = (
        OutputPaths(tmp_path / "a.verdicts"),
        OutputPaths(tmp_path / "b.verdicts", tmp_path / f"unique-{name}"),
    )
    run(bench_of(pool), first, written(tmp_path / "pages.jsonl", PAGES))
    source = write(tmp_path / name)
    summary = run(bench_of(pool), second, source)
    assert answers(second.verdicts) == answers(first.verdicts)
    hosts = Counter(urlsplit(v["url"]).hostname for v in lines(second.verdicts) if v["match"])
    del hosts[None]  # of URLs that name none
    assert summary.most_duplicates() == sorted(hosts.items(), key=lambda each: (-each[1], each[0]))[:10]
    unique = [v["source"]["offset"] for v in lines(second.verdicts) if v["verdict"] == "unique"]
    assert 0 < len(unique) < len(ROWS)
    if name.endswith("csv"):
        with source.open(newline="", encoding="utf-8-sig") as was, second.unique.open(newline="") as now:
            header, *rows = csv.reader(was)
            assert list(csv.reader(now)) == [header, *(rows[n] for n in unique)]
    else:
        found = pq.read_table(second.unique)
        assert found.schema.equals(pq.read_schema(source), check_metadata=True)
        assert found.equals(pq.read_table(source).take(unique))
    again = run(bench_of(pool), OutputPaths(tmp_path / "c.verdicts"), second.unique)
    assert (again.pages, again.duplicates_exact + again.duplicates_near) == (len(unique), 0)


def test_rows_that_are_no_pages_are_rejected_and_the_others_are_judged(pool, tmp_path):
    places = OutputPaths(tmp_path / "verdicts", rejected=tmp_path / "rejected")
    path = tmp_path / "p.tsv"
    path.write_bytes(
        b"url\thtml\ttext\nhttp://x/1\t\tword\nhttp://x/2\ta\tb\n\nhttp://x/3\t\t\xff\nshort\nhttp://x/4\t\t\n"
    )
    summary = run(bench_of(pool), places, path)
    assert (summary.pages, summary.rejected) == (2, 3)
    assert [line["record"] for line in lines(places.rejected)] == [1, 3, 4]


def opened(tmp_path, unique, *names):
    inputs = [open_input(str(name), 1 << 20, spool=False, keep=True) for name in names]
    Outputs(OutputPaths(tmp_path / "verdicts", tmp_path / unique), inputs).close()


def test_what_cannot_be_written_as_a_table_is_said_before_a_page_is_judged(tmp_path):
    lines_of_json, table = written(tmp_path / "p.jsonl", PAGES[:2]), parquet(tmp_path / "p.parquet", ROWS[:2])
    for unique, inputs, message in [
        ("u.parquet", [table, lines_of_json], "Parquet is written of Parquet, and .*p.jsonl is none"),
        ("u.csv", [table], "CSV is written of CSV, and .*p.parquet is none"),
    ]:
        with pytest.raises(InputError, match=message):
            opened(tmp_path, unique, *inputs)
    other = tmp_path / "other.csv"
    other.write_text("url,text\n")
    with pytest.raises(InputError, match="other columns"):
        opened(tmp_path, "u.csv", csv_file(tmp_path / "p.csv"), other)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", b"id,text\n1,a\n", "names no column url with one of html, text, html_base64, but 'id, text'"),
        ("p.csv", b"", "is empty"),
        ("p.csv", b"url,text,text\n", "names a column twice"),
        ("p.csv.gz", b"url,text\n", "which is no .gz as its name says"),
        ("p.parquet", b"PAR1 is all there is", "p.parquet: "),
    ],
)
def test_a_table_without_pages_is_refused_with_the_reason(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_input(str(tmp_path / name), 1000, spool=False)


def test_a_quote_that_is_not_closed_is_a_broken_file(tmp_path):
    (tmp_path / "p.csv").write_bytes(b'url,text\nhttp://x/1,a\nhttp://x/2,"' + b"x" * (1 << 21))
    records = open_input(str(tmp_path / "p.csv"), 1000, spool=False).records()
    assert next(records).value == b'{"url":"http://x/1","text":"a"}'
    with pytest.raises(InputError, match="is a quote not closed"):
        next(records)


def test_a_line_that_is_far_too_long_is_not_read_to_its_end(tmp_path):
    """Of 300 MB that take 30 kB in the file."""
    head = b'url,text\nhttp://x/1,a\nhttp://x/2,"'
    (tmp_path / "p.csv.zst").write_bytes(zstandard.compress(head + b"x" * (300 << 20)))
    records = open_input(str(tmp_path / "p.csv.zst"), 1000, spool=False).records()
    assert next(records).value == b'{"url":"http://x/1","text":"a"}'
    tracemalloc.start()
    with pytest.raises(InputError, match=r"line 3 has more than 2,109,152 characters"):
        next(records)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 32 << 20


@pytest.mark.parametrize(("name", "write"), [("p.parquet", parquet), ("p.csv", csv_file)])
def test_what_came_before_a_broken_input_is_written_and_can_be_read(pool, tmp_path, name, write):
    (tmp_path / "broken.csv").write_bytes(b'n,url,text,id,note\n"')
    broken = tmp_path / "broken.csv"
    if name.endswith("parquet"):
        content = parquet(tmp_path / "broken.parquet", group=50).read_bytes()
        broken = tmp_path / "broken.parquet"
        broken.write_bytes(b"PAR1" + bytes(len(content) // 2) + content[len(content) // 2 + 4 :])
    places = OutputPaths(tmp_path / "verdicts", tmp_path / f"unique-{name}")
    with pytest.raises(InputError, match="broken"):
        run(bench_of(pool), places, write(tmp_path / name), broken)
    again = run(bench_of(pool), OutputPaths(tmp_path / "again"), places.unique)
    assert again.unique == again.pages == sum(v["verdict"] == "unique" for v in lines(places.verdicts))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.timestamp("us"), ["1970-01-01T00:00:00", str(10**18), "1970-01-01T00:00:00.000005"]),
        (
            pa.timestamp("us", "Mars/Phobos"),
            ["1970-01-01T00:00:00+00:00", str(10**18), "1970-01-01T00:00:00.000005+00:00"],
        ),
    ],
)
def test_a_time_that_python_has_none_for_takes_no_other_page_with_it(tmp_path, kind, said):
    columns = {"url": ["http://x/1", "http://x/2", "http://x/3"], "html": ["<p>Some words."] * 3}
    pq.write_table(pa.table(columns | {"fetched_at": pa.array([0, 10**18, 5], kind)}), tmp_path / "a.parquet")
    records = open_input(str(tmp_path / "a.parquet"), 1 << 20, spool=False).records()
    assert [record.page.fetched_at for record in records] == said


def test_of_many_hosts_those_with_the_most_duplicates_are_kept(monkeypatch):
    monkeypatch.setattr(summary_module, "MOST_HOSTS", 10)
    summary = summary_module.Summary()
    for number in range(200):
        for url in (f"http://h{number}/", "http://often/", "http://[bad/"):
            summary._count_host(url)
    assert summary.most_duplicates()[0] == ("often", 200)
    assert len(summary.hosts) <= 10


@pytest.mark.parametrize("name", ["p.parquet", "p.csv", "p.jsonl"])
def test_annotated_pages_are_all_pages_with_what_they_match(pool, tmp_path, name):
    write = {"p.parquet": parquet, "p.csv": csv_file, "p.jsonl": lambda path: written(path, PAGES)}[name]
    places = OutputPaths(tmp_path / "verdicts", annotated=tmp_path / f"annotated-{name}")
    run(bench_of(pool), places, write(tmp_path / name))
    told = [(v["match"] and v["match"]["url"], v["match"] and v["match"]["similarity"]) for v in lines(places.verdicts)]
    assert any(url for url, _ in told)
    if name.endswith("parquet"):
        source, found = pq.read_table(tmp_path / name), pq.read_table(places.annotated)
        assert found.drop_columns(["dup_of", "similarity"]).equals(source)
        rows = found.to_pylist()
    elif name.endswith("csv"):
        rows = list(csv.DictReader(places.annotated.open(newline="")))
        told = [(url or "", "" if url is None else str(similarity)) for url, similarity in told]
    else:
        rows = lines(places.annotated)
        assert [{key: row[key] for key in ROWS[0]} for row in rows] == ROWS
    assert [(row["dup_of"], row["similarity"]) for row in rows] == told


def test_rows_with_views_of_strings_are_written_with_strings(pool, tmp_path):
    """As some programs write them; pyarrow reads views, and can neither choose rows of them nor write nested ones."""
    view = pa.string_view()
    nested = pa.struct([("a", pa.list_(view)), ("b", pa.binary_view())])
    schema = pa.schema([("url", view), ("text", view), ("more", nested)])
    rows = [{"url": row["url"], "text": row["text"], "more": {"a": ["x", None], "b": b"\xff"}} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "p.parquet")
    places = OutputPaths(tmp_path / "v", tmp_path / "unique.parquet", annotated=tmp_path / "all.parquet")
    run(bench_of(pool), places, tmp_path / "p.parquet")
    unique = [row for row, told in zip(rows, lines(places.verdicts), strict=True) if told["verdict"] == "unique"]
    assert pq.read_table(places.unique).to_pylist() == unique
    assert pq.read_table(places.annotated, columns=list(rows[0])).to_pylist() == rows


@pytest.mark.parametrize("at_once", [1, 7, 8192])
def test_rows_are_written_whole_and_in_their_order_however_many_at_once(pool, tmp_path, monkeypatch, at_once):
    """Of two inputs, each read in several batches, so that a buffer ends within a batch and a batch within a buffer."""
    monkeypatch.setattr("worker.files.pages_out.ROWS_AT_ONCE", at_once)
    monkeypatch.setattr("worker.files.parquet.PAGE_ROWS", 50)
    places = OutputPaths(tmp_path / "verdicts", tmp_path / "unique.parquet", annotated=tmp_path / "annotated.parquet")
    inputs = [parquet(tmp_path / "a.parquet", ROWS[:170]), parquet(tmp_path / "b.parquet", ROWS[170:], 33)]
    run(bench_of(pool), places, *inputs)
    told, rows = lines(places.verdicts), [row for each in inputs for row in pq.read_table(each).to_pylist()]
    unique = [row for row, verdict in zip(rows, told, strict=True) if verdict["verdict"] == "unique"]
    assert 0 < len(unique) < len(rows)
    assert pq.read_table(places.unique).to_pylist() == unique
    matches = [verdict["match"] or {"url": None, "similarity": None} for verdict in told]
    expected = [row | {"dup_of": m["url"], "similarity": m["similarity"]} for row, m in zip(rows, matches, strict=True)]
    assert pq.read_table(places.annotated).to_pylist() == expected


def test_a_row_group_is_written_once_its_rows_have_so_many_bytes(pool, tmp_path, monkeypatch):
    """By what the rows kept have, whatever else was read with them: here one long page among each ten."""
    monkeypatch.setattr("worker.files.parquet.PAGE_ROWS", 10)
    monkeypatch.setattr("worker.files.pages_out.BYTES_AT_ONCE", 400_000)
    texts = [" ".join(f"word{n}of{page}" for n in range(20_000)) if page % 10 == 0 else "a copy" for page in range(80)]
    rows = [{"url": f"http://x/{page}", "text": text} for page, text in enumerate(texts)]
    places = OutputPaths(tmp_path / "verdicts", tmp_path / "unique.parquet")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    run(bench_of(pool), places, tmp_path / "a.parquet")
    written = pq.read_metadata(places.unique)
    assert written.num_rows == 9
    assert [written.row_group(n).num_rows for n in range(written.num_row_groups)] == [3, 2, 2, 2]


def test_annotated_pages_are_not_annotated_again(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("url,text,similarity\n")
    inputs = [open_input(str(path), 1000, spool=False, keep=True)]
    with pytest.raises(InputError, match="has a column similarity already"):
        Outputs(OutputPaths(tmp_path / "v", annotated=tmp_path / "a.csv"), inputs)


KINDS = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("content", ["text", "html"])
def test_a_content_may_be_a_column_of_any_kind_of_text_or_bytes(pool, tmp_path, content, kind):
    bodies = [row["text"] for row in ROWS] if content == "text" else [f"<p>{row['text']}é</p>" for row in ROWS]
    rows = [{"url": row["url"], "id": row["id"], content: body} for row, body in zip(ROWS, bodies, strict=True)]
    source = tmp_path / "p.parquet"
    columns = {name: pa.array([row[name] for row in rows]) for name in ("url", "id")}
    pq.write_table(pa.table(columns | {content: pa.array(bodies).cast(kind)}), source)
    for path in (source, written(tmp_path / "p.jsonl", [json.dumps(row).encode() for row in rows])):
        run(bench_of(pool), OutputPaths(path.with_suffix(".verdicts"), path.with_suffix(".unique.jsonl")), path)
    assert answers(source.with_suffix(".verdicts")) == answers(tmp_path / "p.verdicts")


def test_a_dictionary_that_is_not_in_utf8_is_a_broken_input(tmp_path):
    words = pa.array([b"http://\xff/"], pa.binary()).view(pa.string())
    url = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), words)
    pq.write_table(pa.table({"url": url, "text": ["a"]}), tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p\.parquet: .*0xff"):
        list(open_input(str(tmp_path / "p.parquet"), 1 << 20, spool=False).records())


def test_a_row_that_is_not_in_utf8_is_rejected_and_the_others_are_judged(pool, tmp_path):
    good = ROWS[0]["text"].encode()

    def unchecked(*values):
        """Strings as a careless program writes them."""
        return pa.array(values, pa.binary()).view(pa.string())

    source, places = tmp_path / "p.parquet", OutputPaths(tmp_path / "verdicts", rejected=tmp_path / "rejected")
    columns = {
        "url": unchecked(b"http://a/", b"http://b/", b"http://\xff/", b"http://d/"),
        "text": unchecked(good, good + b"\xff", good, None),
        "html": unchecked(None, None, None, b"<p>\xff" + good),
    }
    pq.write_table(pa.table(columns), source)
    summary = run(bench_of(pool), places, source)
    assert (summary.pages, summary.rejected) == (1, 3)
    said = [line["message"] for line in lines(places.rejected)]
    assert said == [
        f"not UTF-8: byte {len(good)} of {len(good) + 1} is 0xff",
        "url is not UTF-8: U+DCFF at character 7",
        f"not UTF-8: byte 3 of {len(good) + 4} is 0xff",
    ]
