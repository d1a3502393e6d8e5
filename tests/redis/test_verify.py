"""`simhash-dedup verify`: verdicts that are right pass, and each way of being wrong is found by its name."""

import copy
import json
import re
from pathlib import Path
from random import Random

import msgspec
import pytest

from simhash.index.interface import Relation
from simhash.index.redis.layout import BAND_FIELD_BITS
from simhash.index.texts import spec_for
from simhash.relation.tables import NAMES, design
from simhash.signature.profiles import DEFAULT, PROFILES
from simhash.signature.profiles import profile as profile_of
from tests.unit.test_docs import imports_of, modules
from tests.verdicts import flags, judged, lines, of_fingerprints, pages, relation
from worker.cli.file import DEFAULTS as FOR_FILES
from worker.cli.verify import DEFAULT_LIMIT
from worker.errors import SettingsError
from worker.verifying import rules, sources, table_masks
from worker.verifying.missed import MissedSearch
from worker.verifying.told import ExportedDesign

SAMPLE = Path(__file__).parents[2] / "samples" / "pages.jsonl.zst"
RULE = relation()
OTHER_DESIGNS = ("7c3", "12r1+20+32", "2(4c3)", "3x5", "8c3r1", "2(4c2)", "8c2", "2(5c2)")


@pytest.fixture
def verify(say, tmp_path):
    """Checks verdicts; gives the counts of what was found, and the whole output."""

    def run(verdicts, *more, rule=RULE):
        path, summary = tmp_path / "verdicts.jsonl", tmp_path / "summary.json"
        path.write_bytes(verdicts if isinstance(verdicts, bytes) else lines(verdicts))
        given = flags(rule) if rule else []
        code, out, err = say("verify", path, *given, *more, "--summary-json", summary, "-q")
        assert code in (0, 1), err
        found = json.loads(summary.read_text())
        assert (code == 1) == bool(found["violations"])
        return found["violations"], out

    return run


@pytest.fixture(scope="module")
def right():
    """Verdicts that are as they should be: 300 pages in chains of neighbours."""
    return judged(pages(300, seed=1), RULE)


@pytest.fixture
def told(right):
    """The same, to be doctored."""
    return copy.deepcopy(right)


# What it shares --------------------------------------------------------------------------------------------------


def test_the_checker_shares_no_code_with_the_judging():
    """It imports nothing of the library, and of the worker only plumbing."""
    plumbing = {"worker.lines", "worker.errors", "worker.stream.kafka.replay", "worker.settings", "worker"}
    for path in modules("worker/verifying"):
        for name in imports_of(path):
            assert name.split(".")[0] != "simhash", path
            assert not name.startswith("worker") or name in plumbing or name.startswith("worker.verifying"), (
                path,
                name,
            )


def test_the_table_of_profiles_is_that_of_the_shipped_ones():
    shipped = {}
    for name in PROFILES:
        found = profile_of(name)
        fold = found.recipe()["verifier"].get("fold", 1) if found.bands else 1
        shipped[found.label] = rules.Shipped(
            found.k, found.reach, found.verifier_reach, found.verifier_bits, found.bands, fold
        )
    assert shipped == rules.PROFILES


@pytest.mark.parametrize("bits", [32, 64, 96, 128])
@pytest.mark.parametrize("name", [*NAMES, *OTHER_DESIGNS])
def test_the_masks_are_the_leads_of_the_tables(name, bits):
    own, theirs = table_masks.named(name, bits), design(name, bits)
    assert sorted(own.leads) == sorted(table.lead for table in theirs.tables)
    assert list(own.radii) == [table.radius for table in theirs.tables]
    assert sorted(table_masks.exported(msgspec.convert(theirs.describe(), ExportedDesign)).leads) == sorted(own.leads)


@pytest.mark.parametrize("name", table_masks.WITHIN)
def test_what_a_design_finds_surely_is_known(name):
    assert table_masks.WITHIN[name] == design(name).k


@pytest.mark.parametrize("name", ["", "0c1", "4c0", "nine", "99c1"])
def test_a_design_that_is_none_is_refused(name):
    with pytest.raises(SettingsError, match="--design"):
        table_masks.named(name, 64)


# What is right passes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "8c2"])
def test_right_verdicts_of_any_design_pass_with_it_and_without(verify, name):
    rule = relation(name)
    verdicts = judged(pages(300, seed=2), rule)
    assert verify(verdicts, rule=rule)[0] == {}
    assert verify(verdicts, "--design", name, rule=rule)[0] == {}


def test_beside_a_base_all_is_checked_but_what_lies_in_it(verify, tmp_path):
    """The first pages of a stream are the base's; the others' numbers begin anew."""
    beside = ("--base", tmp_path)
    every = judged(pages(300, seed=1), RULE)
    based, told = every[:100], every[100:]
    last = max(verdict["seq"] or 0 for verdict in based)
    for named in [verdict["match"] or verdict for verdict in told]:
        named["seq"] -= last if named["seq"] > last else 0
    here = [n for n, verdict in enumerate(told) if verdict["match"] and verdict["match"]["url"] in urls(told)]
    there = [n for n, verdict in enumerate(told) if verdict["match"] and n not in here]
    assert there
    found, out = verify(told, *beside)
    assert found == {}
    assert f"note: {len(there)} duplicates name pages of the base, which is not read" in out
    assert verify(told)[0] != {}
    near = [n for n in here if told[n]["match"]["distance"] <= RULE.design.k]
    told[near[0]]["match"]["distance"] += 1
    told[near[1]] |= {"verdict": "unique", "match": None, "better": None, "seq": 1000}
    assert verify(told, *beside)[0] == {"wrong distance": 1, "two unique pages match": 1, "number out of order": 1}


def urls(verdicts):
    return {verdict["url"] for verdict in verdicts if verdict["verdict"] == "unique"}


def test_pages_that_were_judged_in_another_order_than_they_come_in_pass_where_that_is_said(verify, told):
    offsets = [verdict["source"]["offset"] for verdict in told]
    Random(5).shuffle(offsets)
    for verdict, offset in zip(told, offsets, strict=True):
        verdict["source"]["offset"] = offset
    assert {"number out of order", "match is younger"} <= verify(told)[0].keys()
    assert verify(told, "--any-order")[0] == {}
    next(verdict for verdict in told if verdict["match"])["match"]["distance"] += 1
    assert verify(told, "--any-order")[0] == {"wrong distance": 1}


@pytest.mark.parametrize("bits", [32, 96, 128])
def test_fingerprints_of_any_width_are_compared(verify, bits):
    rule = relation(bits=bits, reach=6)
    verdicts = judged(pages(200, seed=3, bits=bits), rule)
    assert verify(verdicts, "--design", "6", rule=rule)[0] == {}
    unique = [v for v in verdicts if v["verdict"] == "unique" and v["fingerprint"]]
    unique[-1] |= {"fingerprint": unique[0]["fingerprint"], "verifier": unique[0]["verifier"]}
    assert "two unique pages match" in verify(verdicts, "--design", "6", rule=rule)[0]


def test_the_sample_passes_with_its_input_and_its_dead_letters(say, tmp_path):
    out = tmp_path / "verdicts.jsonl"
    inputs = tmp_path / "pages.jsonl"
    inputs.write_bytes(b'{"url": "http://a.example/", "text": "some words"}\n\n{"url": ""}\nno page\n')
    assert say("file", SAMPLE, inputs, "--out", out, "-q")[0] == 0
    given = ("verify", out, "--dead-letters", f"{out}.rejected.jsonl", "--input", SAMPLE, "--input", inputs)
    code, told, _ = say(*given)
    assert (code, told.splitlines()[-1]) == (
        0,
        "413 verdicts (275 unique), 2 dead letters, 415 records: all as promised",
    )
    inputs.write_bytes(inputs.read_bytes() + b"{}\n")
    code, told, _ = say(*given)
    assert code == 1
    assert "4 x lost" in told
    assert "3 x answer to no record" in told


def test_a_verdict_about_what_stood_there_before_is_no_answer_to_the_record(say, tmp_path):
    """As when a topic was made again: the records that are there now were never judged."""
    out, told = tmp_path / "verdicts.jsonl", []
    assert say("file", SAMPLE, "--out", out, "-q")[0] == 0
    for number, line in enumerate(out.read_bytes().splitlines()):
        verdict = json.loads(line)
        if number in (7, 70):
            verdict["observation"] = verdict["observation"][::-1]
        told.append(json.dumps(verdict).encode() + b"\n")
    out.write_bytes(b"".join(told))
    code, told, _ = say("verify", out, "--input", SAMPLE)
    assert code == 1
    assert "2 x answer to another record" in told
    assert "has other bytes, or another time, than the record that was judged" in told


@pytest.mark.parametrize("field", ["url", "id", "fetched_at"])
def test_a_verdict_that_names_another_page_than_its_record_does_is_found(say, tmp_path, field):
    """As when answers were given to the wrong pages: by themselves they look right."""
    out, inputs = tmp_path / "verdicts.jsonl", tmp_path / "pages.jsonl"
    pages = [{"url": f"http://a.example/{n}", "id": f"{n}", "fetched_at": f"2026-11-29T10:00:0{n}Z"} for n in range(9)]
    inputs.write_bytes(lines([page | {"text": f"words{n} " * 40} for n, page in enumerate(pages)]))
    assert say("file", inputs, "--out", out, "-q")[0] == 0
    told = [json.loads(line) for line in out.read_bytes().splitlines()]
    told[2][field], told[5][field] = told[5][field], told[2][field]
    out.write_bytes(lines(told))
    assert say("verify", out, "-q")[0] == 0
    code, found, _ = say("verify", out, "--input", inputs)
    assert code == 1
    assert "2 x answer about another page" in found
    assert "has another url, id or fetched_at than the answer" in found


def test_of_a_line_that_is_too_long_only_the_bytes_are_compared(say, tmp_path, monkeypatch):
    out, inputs = tmp_path / "verdicts.jsonl", tmp_path / "pages.jsonl"
    inputs.write_bytes(lines([{"url": f"http://a.example/{n}", "text": "word " * 400} for n in range(3)]))
    assert say("file", inputs, "--out", out, "-q")[0] == 0
    out.write_bytes(out.read_bytes().replace(b"a.example/1", b"b.example/1"))
    assert "answer about another page" in say("verify", out, "--input", inputs)[1]
    monkeypatch.setattr(sources, "MOST_LINE_BYTES", 1000)
    assert "answer about another page" not in say("verify", out, "--input", inputs)[1]


@pytest.fixture(scope="module")
def crawled_again():
    """Pages of 20 URLs, each fetched four times, with a word or all words changed, or none; some are short."""
    random, lines_ = Random(5), []
    texts = {}
    for visit in range(4):
        for number in range(20):
            words = texts.setdefault(number, [f"w{random.randrange(9999)}" for _ in range(3 if number < 4 else 120)])
            if visit:
                words[random.randrange(len(words))] = f"x{visit}{number}"
            if visit == 2 and number % 2:
                words[:] = [f"y{random.randrange(9999)}" for _ in words]
            page = {"url": f"http://again.example/{number}", "text": " ".join(words)}
            if number % 3:
                page["fetched_at"] = f"2026-11-2{visit}T10:00:{number:02}+01:00"
            lines_.append(page)
            if number % 5 == 0:
                lines_.append(page)
    return b"".join(json.dumps(page).encode() + b"\n" for page in lines_)


@pytest.fixture
def versions(say, crawled_again, tmp_path):
    """The verdicts on them, with what changed."""
    pages_file, out = tmp_path / "again.jsonl", tmp_path / "again.verdicts.jsonl"
    pages_file.write_bytes(crawled_again)
    assert say("file", pages_file, "--out", out, "--previous", "true", "-q")[0] == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_what_is_said_of_last_versions_passes(verify, versions):
    said = [v["previous"] for v in versions if v["previous"]]
    assert len(said) > 60
    assert {v["distance"] for v in said} >= {0, None}
    assert verify(versions, rule=None)[0] == {}


@pytest.mark.parametrize("field", ["fetched_at", "distance", "similarity"])
def test_a_last_version_that_no_page_was_is_found(verify, versions, field):
    near = [v for v in versions if v["previous"] and v["previous"]["distance"] and v["previous"]["fetched_at"]]
    for verdict in near[:3]:
        old = verdict["previous"][field]
        verdict["previous"][field] = {
            "fetched_at": "2026-11-19T00:00:00Z",
            "distance": (old or 0) + 1 if field == "distance" else None,
            "similarity": 0.111,
        }[field]
    assert verify(versions, rule=None)[0] == {"wrong previous": 3}


@pytest.mark.parametrize(("bins", "fold"), [(104, 1), (256, 1), (344, 2), (232, 3)])
def test_sketches_of_ones_own_are_as_similar_as_is_said(say, crawled_again, tmp_path, bins, fold):
    pages, out, own = tmp_path / "again.jsonl", tmp_path / "again.verdicts.jsonl", tmp_path / "own.toml"
    pages.write_bytes(crawled_again)
    reach = round(bins * (1 - 0.75**fold) / 2)
    sketch = f'is = "minhash"\nreach = {reach}\nbins = {bins}\nfold = {fold}\nbands = 4\nrows = 3'
    own.write_text(f"[verifier]\n{sketch}\n")
    assert say("file", pages, "--out", out, "--profile", own, "--previous", "true", "-q")[0] == 0
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum(v["match"] is not None and v["match"]["kind"] == "near" for v in told) > 5
    flags = ("--k", 3, "--reach", 14, "--verifier-reach", reach, "--verifier-bits", bins, "--bands", 4)
    assert say("verify", out, *flags, "--fold", fold, "-q")[0] == 0
    code, found, _ = say("verify", out, *flags, "--fold", fold + 1, "-q")
    assert (code, "wrong similarity" in found) == (1, True)


def test_a_new_url_has_no_last_version_nor_is_a_later_page_one(verify, versions):
    first, later, *_ = (v for v in versions if v["url"] == "http://again.example/7")
    for said in (later["previous"], later["previous"] | {"fetched_at": later["fetched_at"]}):
        first["previous"] = said
        assert verify(versions, rule=None)[0] == {"wrong previous": 1}


def test_verdicts_without_any_page_pass(verify):
    assert verify(b"")[0] == {}


# What is wrong is found by its name ------------------------------------------------------------------------------


def duplicates(told, kind=None):
    return [v for v in told if v["match"] and (kind is None or v["match"]["kind"] == kind)]


def uniques(told):
    return [v for v in told if v["verdict"] == "unique"]


def near(told):
    """Duplicates that have a fingerprint."""
    return [v for v in duplicates(told) if v["fingerprint"]]


def swap_two_matches(told):
    one, *others = near(told)
    other = next(v for v in others if v["match"]["seq"] != one["match"]["seq"])
    one["match"], other["match"] = other["match"], one["match"]


def change_a_distance(told):
    near(told)[3]["match"]["distance"] += 1


def drop_a_unique_page(told):
    told.remove(next(v for v in uniques(told) if any(d["match"]["seq"] == v["seq"] for d in duplicates(told))))


def double_one(told):
    told.append(told[17])


def give_a_number_twice(told):
    uniques(told)[9]["seq"] = uniques(told)[8]["seq"]


def exchange_two_numbers(told):
    named = {d["match"]["seq"] for d in duplicates(told)}
    one, other = [v for v in uniques(told) if v["seq"] in named][:2]
    one["seq"], other["seq"] = other["seq"], one["seq"]


def exchange_two_numbers_that_nobody_names(told):
    named = {d["match"]["seq"] for d in duplicates(told)}
    one, other = [v for v in uniques(told) if v["seq"] not in named][:2]
    one["seq"], other["seq"] = other["seq"], one["seq"]


def call_a_duplicate_unique(told):
    near(told)[5].update(verdict="unique", match=None, seq=10_000)


def call_a_short_duplicate_unique(told):
    next(v for v in duplicates(told) if not v["fingerprint"]).update(verdict="unique", match=None, seq=10_000)


def turn_a_kind(told):
    match = near(told)[2]["match"]
    match["kind"] = {"exact": "near", "near": "exact"}[match["kind"]]


def turn_same_url(told):
    match = near(told)[2]["match"]
    match["same_url"] = not match["same_url"]


def deny_the_canonical_url(told):
    verdict = near(told)[2]
    verdict["canonical"] = verdict["match"]["url"].replace("http://", "HTTP://") + "#top"
    verdict["match"]["is_canonical"] = False


def claim_a_canonical_url(told):
    near(told)[2]["match"]["is_canonical"] = True


def first_of(told, wanted):
    return next(v for v in near(told) if v["match"]["kind"] == "near" and wanted(v))


def claim_the_same_host(told):
    verdict = first_of(told, lambda v: re.match(r"https?://[a-z0-9.-]+/", v["match"]["url"]))
    verdict["url"] = "http://elsewhere.example/"
    verdict["match"]["same_host"] = True


def change_a_similarity(told):
    first_of(told, lambda v: v["match"]["similarity"] > 0.1)["match"]["similarity"] -= 0.031


def change_a_size(told):
    match = first_of(told, lambda v: v["match"]["size"])["match"]
    match["size"] = match["size"] * 2 + 1


def change_a_containment(told):
    match = first_of(told, lambda v: (v["match"]["containment"] or 0) > 0.1)["match"]
    match["containment"] -= 0.05


def call_a_shorter_page_better(told):
    first_of(told, lambda v: v["better"] is False)["better"] = True


def call_a_longer_page_no_better(told):
    first_of(told, lambda v: v["better"] and v["features"] > 2 * v["match"]["size"])["better"] = False


def say_more_than_all(told):
    first_of(told, lambda v: True)["match"]["similarity"] = 1.5


def name_the_match_otherwise(told):
    near(told)[4]["match"]["id"] = "another's"


def name_nobody(told):
    near(told)[4]["match"]["seq"] = 5000


def shorten_a_fingerprint(told):
    near(told)[1]["fingerprint"] = "abc"


def give_a_duplicate_a_number(told):
    near(told)[1]["seq"] = 7000


def use_another_profile(told):
    told[40]["profile"] = "made-up/2"


DOCTORED = [
    (swap_two_matches, "match does not match"),
    (change_a_distance, "wrong distance"),
    (drop_a_unique_page, "match without a verdict"),
    (double_one, "answered twice"),
    (give_a_number_twice, "number given twice"),
    (exchange_two_numbers, "match is another page"),
    (exchange_two_numbers_that_nobody_names, "number out of order"),
    (call_a_duplicate_unique, "two unique pages match"),
    (call_a_short_duplicate_unique, "two unique pages match"),
    (turn_a_kind, "wrong kind"),
    (turn_same_url, "wrong same_url"),
    (deny_the_canonical_url, "wrong is_canonical"),
    (claim_a_canonical_url, "wrong is_canonical"),
    (claim_the_same_host, "wrong same_host"),
    (change_a_similarity, "wrong similarity"),
    (change_a_size, "wrong size"),
    (change_a_containment, "wrong containment"),
    (call_a_shorter_page_better, "wrong better"),
    (call_a_longer_page_no_better, "wrong better"),
    (say_more_than_all, "not a verdict"),
    (name_the_match_otherwise, "match is another page"),
    (name_nobody, "match without a verdict"),
    (shorten_a_fingerprint, "not a verdict"),
    (give_a_duplicate_a_number, "not a verdict"),
    (use_another_profile, "another profile"),
]


@pytest.mark.parametrize(("doctor", "kind"), DOCTORED, ids=[doctor.__name__ for doctor, _ in DOCTORED])
@pytest.mark.parametrize("known", [(), ("--design", "6")], ids=["any design", "its design"])
def test_what_is_wrong_is_found_by_its_name(verify, told, doctor, kind, known):
    doctor(told)
    found, out = verify(told, *known)
    assert kind in found
    assert re.search(rf"verdicts\.jsonl:\d+: {kind}: ", out)


def test_two_indexes_that_write_to_one_verdict_topic_are_said(verify):
    rule = relation(reach=3)
    one, other = (judged(of_fingerprints(*some), rule) for some in ((0, 0xFFFF), (0xFFFF0000, 0xFFFF << 32)))
    for each in other:
        each["source"]["topic"] = "others"
    found, out = verify([*one, *other], rule=rule)
    assert found == {"number given twice": 2}
    assert (
        "note: pages of others and pages have been given the same numbers, as by two indexes that write to one" in out
    )
    assert "two indexes" not in verify([*one, *({**each, "source": one[0]["source"]} for each in other)], rule=rule)[1]


def name(duplicate, unique):
    """Let a duplicate name another page, truly."""
    duplicate["match"] |= {field: unique[field] for field in ("url", "id", "fetched_at", "seq")}
    distance = int(duplicate["fingerprint"], 16) ^ int(unique["fingerprint"], 16)
    duplicate["match"]["distance"] = distance.bit_count()
    duplicate["match"] |= {"similarity": None, "containment": None, "size": None}
    duplicate["better"] = None


def test_a_match_that_is_not_the_oldest_is_found(verify):
    """The last of three matches both of the others, which do not match each other."""
    rule = relation(reach=3)
    told = judged(of_fingerprints(0, 0b111111, 0b111), rule)
    assert [v["verdict"] for v in told] == ["unique", "unique", "duplicate"]
    assert verify(told, rule=rule)[0] == {}
    name(told[2], told[1])
    found, out = verify(told, rule=rule)
    assert found == {"not the oldest match": 1}
    assert "verdicts.jsonl:3: not the oldest match: names number 2 and matches number 1 at" in out


@pytest.mark.parametrize("which", [0, 1, 2])
def test_of_several_pages_under_one_number_a_match_is_the_one_that_it_names(verify, which):
    rule = relation(reach=3)
    told = judged(of_fingerprints(0, 0xFFFF, 0xFFFF0000, 0xFFFF << 32, (0, 0xFFFF, 0xFFFF0000)[which]), rule)
    for unique in told[:3]:
        unique["seq"] = 1
    told[4]["match"]["seq"] = 1
    assert verify(told, rule=rule)[0] == {"number given twice": 2}


def test_a_match_that_was_stored_after_its_page_is_found(verify):
    """The first duplicate names a page behind it in its partition."""
    rule = relation(reach=3)
    told = judged(of_fingerprints(0, 0b11, 0b11111, 1 << 40 | 1), rule)
    assert [v["verdict"] for v in told] == ["unique", "duplicate", "unique", "duplicate"]
    assert verify(told, rule=rule)[0] == {}
    name(told[1], told[2])
    assert verify(told, rule=rule)[0] == {"match is younger": 1, "not the oldest match": 1}


def test_a_stranger_is_found_whether_it_is_far_or_its_verifier_is(verify):
    rule = relation(reach=3)
    for change in ({"fingerprint": f"{0xFFFF:016x}"}, {"verifier": "f" * 16 + "0" * 24}, {"fingerprint": None}):
        told = judged(of_fingerprints(0, 0), rule)
        told[1] |= change
        assert "match does not match" in verify(told, rule=rule)[0]


def test_pages_that_do_not_meet_match_only_where_the_tables_are_not_known(verify):
    """Eight bits apart, one in each block: within reach, in no table together."""
    rule = relation("4", reach=8)
    apart = sum(1 << bit for bit in range(0, 64, 8))
    told = judged(of_fingerprints(0, 0b11, apart), rule)
    assert [v["verdict"] for v in told] == ["unique", "duplicate", "unique"]
    told[1]["fingerprint"] = f"{apart:016x}"
    told[1]["match"]["distance"] = 8
    assert "match does not match" in verify(told, "--design", "4", rule=rule)[0]
    assert verify(told[:2], rule=rule)[0] == {}


# Against brute force ---------------------------------------------------------------------------------------------


class Brute:
    """Which pages match an older unique one that they do not name, by the words of rules.py, pair by pair."""

    def __init__(self, told, rule, limit):
        self.told, self.rule, self.limit = told, rule, limit
        self.unique = sorted(uniques(told), key=lambda v: v["seq"])

    def wrong(self, must):
        return {n for n, page in enumerate(self.told) if any(must(old, page) for old in self.older(page))}

    def older(self, page):
        bound = page["seq"] or page["match"]["seq"]
        return [v for v in self.unique if v["seq"] < bound]

    def near(self, a, b, reach):
        if not (a["fingerprint"] and b["fingerprint"]):
            return False
        distance = (int(a["fingerprint"], 16) ^ int(b["fingerprint"], 16)).bit_count()
        return distance <= reach and self.rule.verified(int(a["verifier"], 16), int(b["verifier"], 16))

    def copy(self, a, b):
        return (a["fingerprint"], a["digest"]) == (b["fingerprint"], b["digest"])

    def stands(self, page, place):
        """Whether fewer than the limit of older unique pages have what `place` gives of this one."""
        older = [v for v in self.older(page) if v["fingerprint"] and place(v) == place(page)]
        return not self.limit or len(older) < self.limit

    def in_band(self, a, b):
        for i in range(self.rule.bands):
            key = self.band(i)
            if key(a) == key(b) != 0 and self.stands(a, lambda v, key=key: key(v) >> 11 if key(v) else None):
                return True
        return False

    def band(self, i):
        return lambda v: self.rule.band_keys(int(v["verifier"], 16))[i]

    def in_table(self, a, b, parts):
        for table in parts.tables:
            lead = table.lead
            different = int(a["fingerprint"], 16) ^ int(b["fingerprint"], 16)
            if (different & lead).bit_count() <= table.radius and self.stands(
                a, lambda v, lead=lead: int(v["fingerprint"], 16) & lead
            ):
                return True
        return False

    def must(self, *parts, reach):
        """The relation: copies; what is near and shares a band, or is within `reach` and meets in all these designs."""

        def rule(a, b):
            if self.copy(a, b):
                return True
            if self.near(a, b, self.rule.reach) and self.in_band(a, b):
                return True
            return self.near(a, b, reach) and all(self.in_table(a, b, each) for each in parts)

        return rule


@pytest.fixture
def damaged(told):
    """Every fourth duplicate is called unique, every third of the others names another page."""
    random, number = Random(5), 1000
    for each in duplicates(told):
        if random.random() < 0.25:
            number += 1
            each.update(verdict="unique", match=None, seq=number)
        elif each["fingerprint"] and random.random() < 0.3:
            name(each, random.choice([v for v in uniques(told) if v["fingerprint"] and v["seq"] < 1000]))
    return told


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_what_was_missed_is_what_brute_force_says(verify, damaged, limit, monkeypatch):
    monkeypatch.setattr("worker.verifying.missed.PAIRS_AT_ONCE", 50)
    brute = Brute(damaged, RULE, limit)
    kinds = ("two unique pages match", "not the oldest match")
    for known, expected in (
        (("--design", "6"), brute.must(RULE.design, reach=RULE.reach)),
        (("--design", "2-probed"), brute.must(design("2-probed"), reach=RULE.reach)),
        ((), brute.must(*map(design, table_masks.WITHIN), reach=3)),
    ):
        found, out = verify(damaged, "--place-limit", limit, *known)
        assert (limit and not known) or "full places" not in out  # which excuse nothing there
        wrong = brute.wrong(expected)
        missed = {n for n in wrong if damaged[n]["verdict"] == "unique"}
        assert [found.get(kind, 0) for kind in kinds] == [len(missed), len(wrong - missed)], known
        assert min(len(missed), len(wrong - missed)) > (2 if limit != 1 else 0)


def meeting_once(parts, random):
    """For each table, and each of its bits that is probed, bits in which two pages differ that meet in no other way."""
    for table in parts.tables:
        rest = [bit for bit in range(parts.bits) if not table.lead >> bit & 1]
        probed = [bit for bit in range(parts.bits) if table.lead >> bit & 1] if table.radius else []
        for bit in [None, *probed]:
            different = 0 if bit is None else 1 << bit
            others = [other for other in parts.tables if other is not table]
            while any((different & other.lead).bit_count() <= other.radius for other in others):
                different |= 1 << random.choice(rest)
            while different.bit_count() < 4:
                different |= 1 << random.choice(rest)
            yield different


@pytest.mark.parametrize("name", ["3", "6", "14", "2-probed", "3-probed", "6-probed"])
def test_each_bit_that_is_probed_is_searched(verify, name):
    random = Random(name)
    differences = list(meeting_once(design(name), random))
    fingerprints = [value for d in differences for one in [random.getrandbits(64)] for value in (one, one ^ d)]
    told = judged(of_fingerprints(*fingerprints), relation("4", reach=3))
    assert all(each["verdict"] == "unique" for each in told)
    reach = max(each.bit_count() for each in differences)
    found, out = verify(told, "--design", name, rule=relation("4", reach=reach))
    assert found == {"two unique pages match": len(differences)}
    assert "verdicts.jsonl:2: two unique pages match: number 2 is unique and matches number 1 at" in out


@pytest.mark.parametrize("name", table_masks.WITHIN)
@pytest.mark.parametrize("bands", [0, 3, 6])
def test_a_place_takes_as_many_pages_as_the_index_says(name, bands):
    ours = rules.Rule(k=3, reach=12, verifier_reach=20, verifier_bits=128, bands=bands)
    theirs, relation = table_masks.named(name, 64), Relation(design(name), 12, 20, 128, bands)
    assert ours.place_limit(theirs) == relation.place_limit
    assert [ours.neighbour_limit(theirs, probes) for probes in theirs.probes] == relation.neighbour_limits


@pytest.mark.parametrize(
    ("profile", "given", "expected"),
    [
        ("jieba-keywords/1", {}, None),
        ("default/2", {"verifier_reach": -1}, None),
        ("default/2", {"verifier_reach": 0}, 0),
        ("mine/1", {"k": 3, "reach": 5, "verifier_reach": -1}, None),
        ("mine/1", {"k": 3, "reach": 5, "verifier_reach": 9}, 9),
    ],
)
def test_a_reach_below_zero_says_that_there_is_no_verifier(profile, given, expected):
    assert rules.rule_of(profile, None, rules.Given(**given), None).verifier_reach == expected


def test_places_are_those_of_an_index_for_files_where_nobody_says_otherwise():
    index, rule = spec_for(DEFAULT, FOR_FILES["documents"]), rules.Rule(*rules.PROFILES["default/2"])
    assert rule.place_bits == index.bucket_bits + BAND_FIELD_BITS
    assert index.relation.place_limit == DEFAULT_LIMIT


@pytest.mark.parametrize(("told_bits", "bits"), [((), 22), (("--bucket-bits", 9), 16), (("--bucket-bits", 30), 32)])
@pytest.mark.parametrize("is_full", [True, False])
def test_a_crowd_fills_the_place_of_a_band_where_all_its_bits_are_equal(verify, told_bits, bits, is_full):
    """Two pages share a band key and no prefix; two others came to the place before, or to the one beside it."""
    near = 0x1234567890ABCDEF
    told = judged(of_fingerprints(0, 0xFFFFFFFFFFFFFFFF, near, near ^ 0x0101010101010101), relation("4"))
    key = 0xABCD1235
    within, beside = (key ^ 1 if bits < 32 else key), key ^ (1 << 32 - bits)
    others = [within if is_full else beside] * 2
    for n, (page, own) in enumerate(zip(told, (*others, key, key), strict=True), 1):
        page.update(verdict="unique", match=None, seq=n, verifier=f"{0:016x}{own:08x}{0:016x}")
    found = verify(told, "--design", "4", "--place-limit", 2, *told_bits, rule=relation("4"))[0]
    assert found == ({} if is_full else {"two unique pages match": 1})


def test_a_template_is_checked_in_linear_time(verify, monkeypatch):
    """Pages of one fingerprint, all unique: none is compared with more than the limit in a table."""
    compared = []
    plain = MissedSearch._compared

    def counted(self, rows, begin, end, held, near):
        compared.append(int((end - begin).sum()))
        yield from plain(self, rows, begin, end, held, near)

    monkeypatch.setattr(MissedSearch, "_compared", counted)
    random = Random(6)
    entries = of_fingerprints(*[0x1234] * 600)
    told = judged(entries[:1], RULE)
    for n, page in enumerate(entries[1:], 2):
        told += [
            copy.deepcopy(told[0]) | {"seq": n, "digest": page.digest, "source": told[0]["source"] | {"offset": n}}
        ]
        told[-1]["verifier"] = f"{random.getrandbits(64):016x}" + "0" * 24
    assert verify(told, "--design", "6", "--place-limit", "16")[0] == {}
    assert sum(compared) <= 600 * 16 * 6


def test_copies_are_never_excused_by_a_crowd(verify):
    """The place of the second page was full; a near copy of it may be missed, an exact one may not."""
    rule = relation(reach=3)
    told = judged(of_fingerprints(0, 0, 0, 0), rule)
    for n, (v, verifier) in enumerate(zip(told, ("0", "f", "f", "f"), strict=True), 1):
        v.update(verdict="unique", match=None, seq=n, verifier=verifier * 16 + "0" * 24)
    told[3]["digest"] = told[1]["digest"]
    assert verify(told, "--place-limit", 1, rule=rule)[0] == {"two unique pages match": 1}
    assert verify(told, "--place-limit", 1, "--design", "6", rule=rule)[0] == {"two unique pages match": 1}
    assert verify(told, "--place-limit", 2, "--design", "6", rule=rule)[0] == {"two unique pages match": 2}


# The input, and what is forgotten --------------------------------------------------------------------------------


def test_gaps_are_noted_where_the_input_is_not_known(verify, told):
    told.remove(duplicates(told)[3])
    found, out = verify(told)
    assert found == {}
    assert "note: pages[0]: 1 offsets between" in out


def test_numbers_that_no_page_has_are_noted(verify, told):
    named = {v["match"]["seq"] for v in duplicates(told)}
    told.remove(next(v for v in told if v["seq"] and v["seq"] > 1 and v["seq"] not in named))
    found, out = verify(told)
    assert found == {}
    assert "note: 1 numbers between 1 and" in out


def forgets(verify, told, *more):
    """What is found with these settings; without them something is."""
    assert verify(told)[0] != {}
    return verify(told, *more)[0]


def test_what_retention_forgot_is_not_held_against_the_index(verify):
    told = judged(of_fingerprints(0, 0xFFFF, 0xFFFF0000, 0xFFFF00000000, 0), relation(reach=3))
    told[4].update(verdict="unique", match=None, seq=5)
    assert forgets(verify, told, "--max-documents", 3) == {}
    assert forgets(verify, told, "--max-documents", 5) == {"two unique pages match": 1}
    assert forgets(verify, told, "--max-age", "30d") == {}, "nobody knows when"


def test_what_was_taken_down_is_not_held_against_the_index(verify, tmp_path):
    told = judged(of_fingerprints(0, 0), relation(reach=3))
    told[1].update(verdict="unique", match=None, seq=2)
    taken = tmp_path / "takedowns.jsonl"
    row = {"url": told[0]["url"], "at": 5, "seq": 1, "observation": told[0]["observation"][:16]}
    taken.write_text(json.dumps(row) + "\n")
    assert forgets(verify, told, "--takedowns", taken) == {}


def test_a_profile_that_is_not_shipped_must_be_described(say, tmp_path, told):
    path = tmp_path / "verdicts.jsonl"
    path.write_bytes(lines(told))
    code, _, err = say("verify", path)
    assert (code, "--reach" in err) == (2, True)
    code, _, err = say("verify", path, *flags(RULE), "--bands", 2)
    assert (code, "160 bits" in err) == (2, True)


# The index -------------------------------------------------------------------------------------------------------


@pytest.fixture
def export(redis_server, name, say, tmp_path):
    """The sample's verdicts, and its index as rows."""
    out, rows = tmp_path / "sample.jsonl", tmp_path / "index.jsonl"
    server = ("--redis-url", redis_server.url, "--index-name", name)
    assert say("file", SAMPLE, "--out", out, *server, "-q")[0] == 0
    assert say("index", "export", rows, *server)[0] == 0
    assert say("verify", out, "--index", *server)[0] == 0
    return out, [json.loads(line) for line in rows.read_text().splitlines()]


def remove_a_record(rows):
    rows.remove(records(rows)[7])
    rows[-1]["records"] -= 1


def add_a_record(rows):
    rows.insert(-1, records(rows)[7] | {"seq": 9999})
    rows[-1]["records"] += 1


def repeat_a_record(rows):
    rows.insert(-1, records(rows)[7] | {"url": "http://another.example/"})
    rows[-1]["records"] += 1


def change(field, value):
    def doctor(rows):
        records(rows)[7][field] = value

    doctor.__name__ = f"change_{field}"
    return doctor


def records(rows):
    return [row for row in rows if row["row"] == "record"]


STORED = [
    (remove_a_record, "not in the index", "no such record"),
    (add_a_record, "in the index only", "is of no page that was called unique"),
    (repeat_a_record, "in the index only", "number [0-9]+ is there more than once"),
    *(
        (change(field, value), "differs in the index", f"has another {words}")
        for field, words, value in (
            ("url", "url, id or fetched_at", "http://another.example/"),
            ("observation", "observation", "0" * 16),
            ("digest", "digest", "text:" + "0" * 16),
            ("fingerprint", "fingerprint", "0" * 16),
            ("verifier", "verifier", "0" * 134),
        )
    ),
]


@pytest.mark.parametrize(("doctor", "kind", "words"), STORED, ids=[doctor.__name__ for doctor, *_ in STORED])
def test_an_index_that_holds_something_else_is_found(verify, export, tmp_path, doctor, kind, words):
    out, rows = export
    doctored = tmp_path / "doctored.jsonl"
    doctor(rows)
    doctored.write_bytes(lines(rows))
    found, said = verify(out.read_bytes(), "--export", doctored, rule=None)
    assert found == {kind: 1}
    assert re.search(f": {kind}: .*{words}$", said, re.MULTILINE)


def held(told):
    """The record of a unique page, as an export has it."""
    of_page = {name: told[name] for name in ("seq", "fingerprint", "verifier", "url", "id", "fetched_at")}
    digest = told["digest"][: told["digest"].index(":") + 17]
    return {"row": "record", **of_page, "digest": digest, "observation": told["observation"][:16]}


@pytest.mark.parametrize(("generation", "is_right"), [("1-0a", False), ("2-0a", True), ("12-0a", True)])
def test_an_index_that_was_migrated_says_not_by_which_tables_its_pages_were_judged(
    verify, tmp_path, generation, is_right
):
    former, present = relation("3"), relation("10")
    told, whole = judged(pages(300, seed=5), former), tmp_path / "whole.jsonl"
    stored = [held(verdict) for verdict in told if verdict["seq"]]
    says = {"reach": 8, "verifier_reach": 14, "verifier_bits": former.verifier_bits, "bands": 3, "bucket_bits": 8}
    head = {"row": "index", "generation": generation, "profile": {}, "design": present.design.describe(), **says}
    whole.write_bytes(lines([head, *stored, {"row": "end", "records": len(stored)}]))
    found, said = verify(told, "--export", whole, rule=former)
    assert (found == {}) == is_right
    assert ("note: the index was migrated" in said) == is_right
    assert verify(told, "--export", whole, "--design", "3", rule=former)[0] == {}


def test_an_export_that_is_not_whole_is_refused(say, export, tmp_path):
    out, rows = export
    broken = tmp_path / "broken.jsonl"
    for content, words in (
        (lines(rows[:-1]), "cut off"),
        (lines(rows[1:]), "does not begin with the row of an index"),
        (lines(rows[:4]) + b"{}\n" + lines(rows[4:]), "row 5 is none of an index's export"),
    ):
        broken.write_bytes(content)
        code, _, err = say("verify", out, "--export", broken)
        assert (code, words in err) == (3, True), err


def test_a_page_that_was_taken_down_and_is_there_is_found(verify, export, tmp_path):
    out, rows = export
    whole, taken = tmp_path / "whole.jsonl", tmp_path / "takedowns.jsonl"
    whole.write_bytes(lines(rows))
    row = records(rows)[3]
    taken.write_bytes(lines([{"url": row["url"], "at": 1, "seq": row["seq"], "observation": row["observation"]}]))
    found, _ = verify(out.read_bytes(), "--export", whole, "--takedowns", taken, rule=None)
    assert found == {"taken down, and in the index": 1}
