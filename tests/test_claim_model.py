"""The claim protocol, searched to its end: every interleaving of two workers on three pages (see `claim_model`).

Workers crash and stall at every step (a stalled one is a worker that takes no step for long), any worker may be handed
any uncommitted page at any time, also one that another works on; an operator lets claims go; one page is removed.

In every state that can be reached: no two live unique pages match; a duplicate names a unique page that it matches; no
verdict flips and none comes after the commit; and where no claim is held the keys hold the live unique pages and no
more. From every state workers alone, without a crash and without an operator, can still come to the end at which every
page has its verdict. Then each rule of the protocol is left out in turn, and the search must find what that breaks.

All is searched in two parts, with and without the removal, to be quick; CLAIM_MODEL=whole searches the product.
"""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest

from tests.claim_model import PAGES, STEPS, UNIQUE, A, B, Broken, C, Claim, Rules, State, begun, check, ended, put

WHOLE = Rules()
JUDGING = Rules(removals=False)
REMOVING = Rules(commits=False, batches=((A,), (B,), (C,)), removable=(A,))
ALIKE = replace(REMOVING, batches=((A,), (C,)))
"""Two pages under one fingerprint, one of which is removed."""


def by_workers(state, rules) -> Iterator[State]:
    """Where workers that go on can come in one step; a commit included."""
    for at, worker in enumerate(state.workers):
        if worker is None and at and state.workers[0] is None:
            continue  # two idle workers are alike
        found = [STEPS[worker.step](state, worker, rules)] if worker else begun(state, rules)
        for now, after in found:
            yield tidy(now._replace(workers=put(now.workers, at, after)))
    for page in PAGES if rules.commits else ():
        if state.journal[page] is not None:
            yield state._replace(journal=put(state.journal, page, None), committed=state.committed | {page})


def by_mishaps(state, rules) -> Iterator[State]:
    """Where crashes and operators can bring us."""
    for at, worker in enumerate(state.workers):
        if worker:
            yield tidy(state._replace(workers=put(state.workers, at, None)))
    for page, claim in enumerate(state.claims):
        if claim and (claim.state == "held" or (claim.state == "numbered" and not rules.numbered_claims_stay)):
            yield tidy(state._replace(claims=put(state.claims, page, None)))


def order(worker):
    return () if worker is None else (worker.task, worker.pages, worker.step, worker.nonce)


def tidy(state):
    """Alike states made equal: workers in a fixed order, nonces counted from 0, those that nobody has dropped."""
    workers = state.workers
    if order(workers[0]) > order(workers[1]):
        workers = workers[::-1]
    alive = {w.nonce for w in workers if w} | {claim.writers[-1] for claim in state.claims if claim}
    new = {nonce: at for at, nonce in enumerate(sorted(alive))}

    def named(nonces):
        return tuple(new[n] for n in nonces if n in new)

    claims = tuple(claim and Claim(claim.state, named(claim.writers)) for claim in state.claims)
    barred = tuple(frozenset(named(group)) if group else group for group in state.barred)
    workers = tuple(w and w._replace(nonce=new[w.nonce], bars=named(w.bars)) for w in workers)
    return state._replace(claims=claims, barred=barred, workers=workers)


def explored(rules):
    """Every state that can be reached, and from where workers can step into it. Raises Broken."""
    start = State()
    into: dict[State, list[State]] = {start: []}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for followers, worked in ((by_workers(state, rules), True), (by_mishaps(state, rules), False)):
            for after in followers:
                if after not in into:
                    check(after)
                    into[after] = []
                    waiting.append(after)
                if worked:
                    into[after].append(state)
    return into


def can_end(into, rules):
    """The states from which workers alone can come to an end."""
    found = {state for state in into if ended(state, rules)}
    waiting = deque(found)
    while waiting:
        for before in into[waiting.popleft()]:
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found


def searched(rules):
    """All states. Raises Broken, also when workers cannot leave one of them."""
    into = explored(rules)
    if len(can_end(into, rules)) < len(into):
        raise Broken("a state that workers cannot leave")
    return into


@pytest.mark.parametrize("rules", [WHOLE] if os.environ.get("CLAIM_MODEL") == "whole" else [JUDGING, REMOVING])
def test_the_protocol_keeps_every_guarantee_in_every_interleaving(rules):
    into = searched(rules)
    verdicts = {state.verdicts for state in into if ended(state, rules)}
    assert {(UNIQUE, A, UNIQUE), (B, UNIQUE, B)} <= verdicts


@pytest.mark.parametrize(
    ("left_out", "rules", "what_breaks"),
    [
        ("nonces", JUDGING, "more or less than the live pages"),
        ("claims", JUDGING, "more or less than the live pages"),
        ("claim_before_reading", JUDGING, "two unique pages match"),
        ("marks", JUDGING, "a committed page is judged again"),
        ("numbered_claims_stay", JUDGING, "more or less than the live pages"),
        ("write_before_finish", JUDGING, "more or less than the live pages"),
        ("all_or_nothing", JUDGING, "a duplicate of a page that is not unique"),
        ("bars", ALIKE, "more or less than the live pages"),
        ("bars_everywhere", ALIKE, "more or less than the live pages"),
        ("fingerprints_conflict", ALIKE, "more or less than the live pages"),
        ("removals_claim", ALIKE, "more or less than the live pages"),
    ],
)
def test_each_rule_is_needed(left_out, rules, what_breaks):
    with pytest.raises(Broken, match=what_breaks):
        searched(replace(rules, **{left_out: False}))


def test_that_the_lowest_shared_table_decides_loses_pages():
    """Without claims: each page enters its tables one by one, and is a duplicate of what was before it in a table.

    A and B share table 1, B and C table 2, C and A table 3: A before B before C before A, and none is unique.
    """
    entries = [(A, 1), (A, 3), (B, 1), (B, 2), (C, 2), (C, 3)]
    lost = 0
    for interleaving in permutations(entries):
        first: dict[int, int] = {}
        for page, table in interleaving:
            first.setdefault(table, page)
        lost += all(any(first[table] != page for p, table in entries if p == page) for page in PAGES)
    assert lost
