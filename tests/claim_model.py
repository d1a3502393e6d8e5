"""A model of the claim protocol: its state, and each step of a worker as a function of it.

`test_claim_model` goes through all that can happen in it.

A matches B and B matches C; A and C do not match but lie under one fingerprint. Of the keys, a page's record and first
member are in one group, its second member, by which matches meet, in another. A worker takes pages alone or two at a
time, as `simhash.index.cluster.index` does; each script of the claim slot and each write to a group is one step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

A, B, C = PAGES = range(3)
FINGERPRINTS = ("f", "g", "f")
MATCHES = {(A, B), (B, A), (B, C), (C, B)}
BATCHES = ((A,), (B,), (C,), (A, B), (B, C))
UNIQUE = -1
FIRST, SECOND = 0, 1


class Broken(Exception):
    """A guarantee does not hold."""


@dataclass(frozen=True)
class Rules:
    """What the protocol insists on (a test leaves one out), and what happens in this search."""

    nonces: bool = True
    claims: bool = True
    claim_before_reading: bool = True
    bars: bool = True
    fingerprints_conflict: bool = True
    removals_claim: bool = True
    marks: bool = True
    numbered_claims_stay: bool = True
    write_before_finish: bool = True
    all_or_nothing: bool = True
    bars_everywhere: bool = True
    removals: bool = True
    commits: bool = True
    batches: tuple[tuple[int, ...], ...] = BATCHES
    removable: tuple[int, ...] = PAGES


class Claim(NamedTuple):
    """state: held, numbered or removing; writers: every nonce that may have written, the holder's last."""

    state: str
    writers: tuple[int, ...]


class Worker(NamedTuple):
    """What a worker does (judge or remove), its pages, the step it takes next, and what it has learnt.

    bars: former holders of what it took over; found: for each page what it read; at last its match, or UNIQUE.
    """

    task: str
    pages: tuple[int, ...]
    step: str
    nonce: int
    bars: tuple[int, ...] = ()
    found: tuple[object, ...] = ()


class State(NamedTuple):
    """All that is shared, and the workers. `verdicts` remembers what was ever announced, to compare with."""

    claims: tuple[Claim | None, ...] = (None,) * 3
    journal: tuple[int | None, ...] = (None,) * 3
    committed: frozenset[int] = frozenset()
    numbers: tuple[int, ...] = ()
    records: frozenset[int] = frozenset()
    tables: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    barred: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    removed: frozenset[int] = frozenset()
    verdicts: tuple[int | None, ...] = (None,) * 3
    workers: tuple[Worker | None, ...] = (None, None)


def put(values, at, value):
    """A tuple with one value changed."""
    return (*values[:at], value, *values[at + 1 :])


def live(state, page):
    """Announced unique, and its removal has not begun."""
    claim = state.claims[page]
    removing = claim is not None and claim.state == "removing"
    return state.verdicts[page] == UNIQUE and page not in state.removed and not removing


def check(state):
    """What must hold in every state."""
    if live(state, B) and (live(state, A) or live(state, C)):
        raise Broken("two unique pages match")
    for page, verdict in enumerate(state.verdicts):
        if verdict not in (None, UNIQUE) and state.verdicts[verdict] != UNIQUE:
            raise Broken("a duplicate of a page that is not unique")
        if verdict not in (None, UNIQUE) and (page, verdict) not in MATCHES:
            raise Broken("a duplicate of a page that it does not match")
    if not any(state.claims):
        stored = {page for page in PAGES if live(state, page)}
        members = {FINGERPRINTS[page] for page in stored}
        if state.records != stored or state.tables != (members, members):
            raise Broken("the keys hold more or less than the live pages")


def ended(state, rules):
    """Every page that is handed in has its verdict, and nothing is under way."""
    handed = {page for batch in rules.batches for page in batch}
    return all(state.verdicts[page] is not None for page in handed) and not any(state.claims) and not any(state.workers)


# The claim slot: each of these is one step ----------------------------------------------------------------------------


def blocked(state, page, nonce, rules):
    """Whether a claim of another nonce keeps this page from being claimed."""
    return any(
        claim is not None
        and other != page
        and claim.writers[-1] != nonce
        and (
            ((page, other) in MATCHES and claim.state != "removing")
            or (rules.fingerprints_conflict and FINGERPRINTS[page] == FINGERPRINTS[other])
        )
        for other, claim in enumerate(state.claims)
    )


def open_(state, page, rules):
    """Whether a page is still to be judged: neither journalled nor, by the mark, committed."""
    return state.journal[page] is None and (page not in state.committed or not rules.marks)


def claimed(state, pages, nonce, rules):
    """The pages of a batch that could be claimed, with those of them that were numbered before, and their writers."""
    held, found, bars = [], [], []
    for page in pages:
        claim = state.claims[page]
        if claim and claim.state == "held":
            state = state._replace(claims=put(state.claims, page, None))
    for page in pages:
        claim = state.claims[page]
        if not open_(state, page, rules) or (claim and claim.state == "removing"):
            continue
        if claim and claim.state == "numbered":
            bars += claim.writers
            now = Claim("numbered", (*claim.writers, nonce))
        else:
            if blocked(state, page, nonce, rules):
                continue
            now = Claim("held", (nonce,))
        state = state._replace(claims=put(state.claims, page, now))
        held.append(page)
        found.append(UNIQUE if now.state == "numbered" else None)
    return state, tuple(held), tuple(found), tuple(sorted(set(bars)))


def holds(state, worker, rules, pages=None):
    """Whether all claims are still this worker's."""
    if not rules.nonces or not rules.claims:
        return True
    claims = [state.claims[page] for page in (worker.pages if pages is None else pages)]
    return all(claim is not None and claim.writers[-1] == worker.nonce for claim in claims)


def announced(state, page, verdict):
    if state.verdicts[page] not in (None, verdict):
        raise Broken("a verdict flips")
    if page in state.committed:
        raise Broken("a committed page is judged again")
    return state._replace(verdicts=put(state.verdicts, page, verdict), journal=put(state.journal, page, verdict))


# Steps of a worker ----------------------------------------------------------------------------------------------------


def begun(state, rules) -> Iterator[tuple[State, Worker]]:
    """What an idle worker can begin: pages that Kafka delivers, or the removal of a page."""
    nonces = [n for claim in state.claims if claim for n in claim.writers] + [w.nonce for w in state.workers if w]
    nonce = max(nonces, default=0) + 1
    for batch in rules.batches:
        if any(open_(state, page, rules) for page in batch):
            yield from begun_judging(state, batch, nonce, rules)
    for page in rules.removable if rules.removals else ():
        yield from begun_removing(state, page, nonce, rules)


def begun_judging(state, batch, nonce, rules):
    if not rules.claims or not rules.claim_before_reading:
        pages = tuple(page for page in batch if open_(state, page, rules))
        yield state, Worker("judge", pages, "read", nonce, (), (None,) * len(pages))
        return
    now, held, found, bars = claimed(state, batch, nonce, rules)
    if held:
        yield now, Worker("judge", held, "read", nonce, bars, found)


def begun_removing(state, page, nonce, rules):
    claim = state.claims[page]
    if claim and claim.state == "removing":
        taken = Claim("removing", (*claim.writers, nonce))
        yield (
            state._replace(claims=put(state.claims, page, taken)),
            Worker("remove", (page,), "look", nonce, claim.writers),
        )
        return
    alike = any(FINGERPRINTS[other] == FINGERPRINTS[page] for other, c in enumerate(state.claims) if c)
    others = any(c.state == "removing" for c in state.claims if c)
    if not state.removed and not others and live(state, page) and not (alike and rules.removals_claim) and not claim:
        claims = put(state.claims, page, Claim("removing", (nonce,)))
        yield state._replace(claims=claims), Worker("remove", (page,), "look", nonce)


def read(state, worker, rules):
    near = [
        done if done is not None else FINGERPRINTS[B if page != B else A] in state.tables[SECOND]
        for page, done in zip(worker.pages, worker.found, strict=True)
    ]
    return state, worker._replace(step="read records", found=tuple(near))


def read_records(state, worker, rules):
    """Judge the batch in order; what is unique in it counts for the pages behind."""
    fresh, found = [], []
    for page, near in zip(worker.pages, worker.found, strict=True):
        stored = [p for p in state.numbers if near is True and p in state.records]
        matches = [p for p in [*stored, *fresh] if (page, p) in MATCHES]
        verdict = UNIQUE if (near == UNIQUE and near is not True) or not matches else matches[0]
        if verdict == UNIQUE:
            fresh.append(page)
        found.append(verdict)
    step = "number" if rules.claim_before_reading or not rules.claims else "claim"
    return state, worker._replace(step=step, found=tuple(found))


def claim_late(state, worker, rules):
    now, held, found, bars = claimed(state, worker.pages, worker.nonce, rules)
    if held != worker.pages or UNIQUE in found:
        return state, None
    return now, worker._replace(step="number", bars=bars)


def number(state, worker, rules):
    if not holds(state, worker, rules):
        return state, None
    for page, verdict in zip(worker.pages, worker.found, strict=True):
        if verdict == UNIQUE:
            claim = state.claims[page]
            numbered = claim if claim and claim.state == "numbered" else Claim("numbered", (worker.nonce,))
            numbers = state.numbers if page in state.numbers else (*state.numbers, page)
            state = state._replace(numbers=numbers, claims=put(state.claims, page, numbered))
    return state, worker._replace(step="write 1" if rules.write_before_finish else "finish")


def fenced(state, worker, group, rules):
    """In the step in which a worker writes to a group it bars the former ones; and may find itself barred."""
    if not rules.bars:
        return state, False
    barred = state.barred[group] | frozenset(worker.bars)
    return state._replace(barred=put(state.barred, group, barred)), worker.nonce in barred


def uniques(worker):
    return [page for page, verdict in zip(worker.pages, worker.found, strict=True) if verdict == UNIQUE]


def write_first(state, worker, rules):
    state, barred = fenced(state, worker, FIRST, rules)
    if barred:
        return state, None
    pages = uniques(worker)
    tables = put(state.tables, FIRST, state.tables[FIRST] | {FINGERPRINTS[page] for page in pages})
    return state._replace(records=state.records.union(pages), tables=tables), worker._replace(step="write 2")


def write_second(state, worker, rules):
    state, barred = fenced(state, worker, SECOND, rules)
    if barred:
        return state, None
    tables = put(state.tables, SECOND, state.tables[SECOND] | {FINGERPRINTS[page] for page in uniques(worker)})
    return state._replace(tables=tables), worker._replace(step="finish") if rules.write_before_finish else None


def finish(state, worker, rules):
    if rules.all_or_nothing and not holds(state, worker, rules):
        return state, None
    for page, verdict in zip(worker.pages, worker.found, strict=True):
        if holds(state, worker, rules, [page]):
            state = announced(state, page, verdict)._replace(claims=put(state.claims, page, None))
    late = uniques(worker) and not rules.write_before_finish
    return state, worker._replace(step="write 1") if late else None


def look(state, worker, rules):
    """Which members go: none while another record lies under the fingerprint, or when the record has gone already.

    Former removers are barred from both groups all the same: one may have looked earlier."""
    (page,) = worker.pages
    shared = any(other != page and FINGERPRINTS[other] == FINGERPRINTS[page] for other in state.records)
    gone = () if shared or page not in state.records else (FINGERPRINTS[page],)
    step = "erase 1" if gone or rules.bars_everywhere else "erase record"
    return state, worker._replace(step=step, found=gone)


def erase_member(group, after):
    def step(state, worker, rules):
        state, barred = fenced(state, worker, group, rules)
        if barred:
            return state, None
        tables = put(state.tables, group, state.tables[group].difference(worker.found))
        return state._replace(tables=tables), worker._replace(step=after)

    return step


def erase_record(state, worker, rules):
    state, barred = fenced(state, worker, FIRST, rules)
    if barred:
        return state, None
    return state._replace(records=state.records.difference(worker.pages)), worker._replace(step="removed")


def removed(state, worker, rules):
    if not holds(state, worker, rules):
        return state, None
    (page,) = worker.pages
    return state._replace(claims=put(state.claims, page, None), removed=state.removed | {page}), None


STEPS = {
    "read": read,
    "read records": read_records,
    "claim": claim_late,
    "number": number,
    "write 1": write_first,
    "write 2": write_second,
    "finish": finish,
    "look": look,
    "erase 1": erase_member(FIRST, "erase 2"),
    "erase 2": erase_member(SECOND, "erase record"),
    "erase record": erase_record,
    "removed": removed,
}
