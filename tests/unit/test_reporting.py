"""`report` and `explain`: what is counted, which pairs are shown, and what a page's own words may not do."""

import gzip
import json
import re
from base64 import b64decode

import msgspec
import pytest

from simhash import MemoryIndex
from simhash.signature.profiles import DEFAULT
from tests.texts import PAGES, STORIES
from worker.judging.fingerprinters import recipe
from worker.judging.judge import judge, prepare
from worker.records.hints import host_of
from worker.records.passing import RawRecord, Source
from worker.records.verdict import encode
from worker.reporting.pairs import LARGEST_PAGE, names_of, shown
from worker.reporting.report_data import ReportData
from worker.settings import Settings


def lines(pages):
    return [json.dumps({"url": url, "text": text}).encode() for url, text in pages]


def told_of(pages):
    """Verdicts on these pages."""
    records = [RawRecord(Source("pages", 0, n, None), None, line) for n, line in enumerate(lines(pages))]
    prepared = [prepare(record, recipe(Settings(), DEFAULT)) for record in records]
    return [each.verdict for each in judge(prepared, MemoryIndex(), DEFAULT)]


@pytest.fixture
def files(tmp_path):
    """Pages, and the verdicts on them."""
    pages, verdicts = tmp_path / "pages.jsonl", tmp_path / "verdicts.jsonl"
    pages.write_bytes(b"\n".join(lines(PAGES)) + b"\n")
    verdicts.write_bytes(b"".join(encode(each) + b"\n" for each in told_of(PAGES)))
    return pages, verdicts


def data_of(path):
    """What a report's script unpacks."""
    packed = re.search(r'<script id="data" type="application/gzip">([^<]*)</script>', path.read_text(encoding="utf-8"))
    return json.loads(gzip.decompress(b64decode(packed[1])))


def test_totals_hosts_and_clusters_are_those_of_the_verdicts():
    collected = ReportData()
    collected.add_all(told_of(PAGES))
    assert (collected.verdicts, collected.unique, collected.exact, collected.near) == (36, 12, 12, 12)
    hosts = {name: (h.pages, h.unique, h.exact, h.near) for name, h in collected.hosts.items()}
    assert hosts == {"a.example": (12, 12, 0, 0), "b.example": (12, 0, 0, 12), "c.example": (12, 0, 12, 0)}
    assert set(collected.clusters.values()) == {2}
    assert [len(cluster) for cluster in collected.largest(3)] == [2, 2, 2]
    assert sum(collected.similarities) == sum(collected.distances.values()) - collected.exact == 12


def test_a_url_without_a_host_is_its_own():
    assert host_of("https://Example.org:8080/x") == "example.org"
    assert host_of("no url at all") is host_of("http://[broken") is None
    collected = ReportData()
    collected.add_all([msgspec.structs.replace(told_of(PAGES)[0], url="no url at all")])
    assert list(collected.hosts) == ["no url at all"]


def test_pairs_of_clusters_and_the_least_similar_are_shown_first():
    collected = ReportData()
    collected.add_all(told_of(PAGES))
    assert len(shown(collected, 50, 10)) == 10
    assert {row.number for row in shown(collected, 50, 1000)} == {row.number for row in collected.rows}
    least = min((row for row in collected.rows if row.kind == "near"), key=lambda row: row.similarity or 0.0)
    assert shown(collected, 1, 1)[0].number == least.number
    assert names_of([least]) == {(least.url, None), (least.match_url, None)}


def test_a_report_has_the_pairs_with_their_texts(files, say, tmp_path):
    pages, verdicts = files
    out = tmp_path / "out.html"
    code, told, _ = say("report", verdicts, "--pages", pages, "--out", out, "--pairs", 5)
    assert (code, told) == (0, f"36 verdicts, 24 duplicates, 5 pairs: {out}\n")
    data = data_of(out)
    assert data["totals"] == {"verdicts": 36, "unique": 12, "exact": 12, "near": 12, "same_url": 0, "better": 0}
    assert len(data["rows"]) == 24
    texts = dict(PAGES)
    for number, pair in data["pairs"].items():
        row = next(row for row in data["rows"] if row[0] == int(number))
        for side, url in ((0, row[2]), (-1, row[1])):
            assert " ".join(part[side] for part in pair["parts"] if part[side]).split() == texts[url].split()
        assert pair["distance"][0] == row[4]


def test_pages_are_not_explained_by_another_version_of_their_profile(files, say, tmp_path):
    pages, verdicts = files
    old = tmp_path / "old.jsonl"
    old.write_bytes(verdicts.read_bytes().replace(b'"profile":"default/2"', b'"profile":"default/1"'))
    code, _, told = say("report", old, "--pages", pages, "--out", tmp_path / "out.html")
    assert (code, "are of profile default/1, and this program has default/2" in told) == (3, True)
    assert say("report", old, "--out", tmp_path / "out.html")[0] == 0


def test_a_report_is_not_overwritten_and_says_what_is_no_verdict(files, say, tmp_path):
    pages, verdicts = files
    out = tmp_path / "out.html"
    assert say("report", verdicts, "--out", out)[0] == 0
    assert say("report", verdicts, "--out", out)[2] == f"simhash-dedup: {out} is there already: --force overwrites it\n"
    code, _, wrong = say("report", pages, "--out", out, "--force")
    assert code == 3
    assert wrong.startswith(f"simhash-dedup: {pages}, line 1: not a verdict:")


def test_what_strangers_wrote_is_only_text(say, tmp_path):
    evil = "https://a.example/</script><script>document.title='ran'</script>"
    verdict = msgspec.structs.replace(told_of(PAGES)[0], url=evil)
    (tmp_path / "v.jsonl").write_bytes(encode(verdict) + b"\n")
    assert say("report", tmp_path / "v.jsonl", "--out", tmp_path / "out.html")[0] == 0
    written = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "document.title='ran'" not in written
    assert written.count("</script>") == 2


def test_explain_says_on_the_terminal_why_two_pages_match(files, say):
    pages, _ = files
    code, told, _ = say("explain", PAGES[0][0], PAGES[1][0], "--pages", pages)
    assert code == 0
    assert told.startswith(f"duplicates by profile default/{DEFAULT.version}\n")
    assert "differ in" in told
    assert re.search(r"^  \+ new\d+", told, re.M)


def test_explain_reads_files_and_says_that_they_do_not_match(say, tmp_path):
    (tmp_path / "a.html").write_text(f"<p>{STORIES[0]}</p>")
    (tmp_path / "b.txt").write_text(STORIES[1])
    (tmp_path / "c.txt").write_text(STORIES[0])
    assert say("explain", tmp_path / "a.html", tmp_path / "b.txt")[:2][0] == 1
    code, told, _ = say("explain", tmp_path / "a.html", tmp_path / "c.txt")
    assert (code, told.splitlines()[0]) == (0, f"duplicates by profile default/{DEFAULT.version}: the same text")


def test_explain_says_what_is_not_there_or_no_page(files, say, tmp_path):
    pages, _ = files
    (tmp_path / "crawl.jsonl").write_bytes(bytes(LARGEST_PAGE + 1))
    code, _, wrong = say("explain", tmp_path / "crawl.jsonl", "nowhere")
    assert (code, "crawl.jsonl: a page has 10,485,760 bytes at most" in wrong) == (3, True), wrong
    code, _, wrong = say("explain", "nowhere", PAGES[0][0], "--pages", pages)
    assert (code, wrong) == (3, f"simhash-dedup: no page has the URL or id nowhere in {pages}\n")
    code, _, wrong = say("explain", "nowhere", "nowhere")
    assert (code, wrong.count("\n")) == (3, 1)
    assert say("explain", "a", "b", "--profile", "none")[0] == 2


def test_verdicts_of_another_profile_are_counted_all_the_same():
    collected = ReportData()
    collected.add_all(msgspec.structs.replace(each, profile="mine/3") for each in told_of(PAGES))
    assert (collected.near, collected.profiles) == (12, {"mine/3": 36})
