"""Texts for what is asked with texts: some stories, each in its first version and with a few words changed."""

import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier

WORDS = tuple(f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra", "so", "tu") for b in ("ban", "dor", "fel", "gim"))


def story(seed: int, words: int = 120) -> str:
    """A text of so many words; another seed, another text."""
    random = Random(seed)
    return " ".join(random.choice(WORDS) + str(random.randrange(40)) for _ in range(words))


def changed(text: str, seed: int, words: int = 2) -> str:
    """The text with so many of its words replaced."""
    random = Random(seed)
    parts = text.split()
    for place in random.sample(range(len(parts)), words):
        parts[place] = f"new{random.randrange(1000)}"
    return " ".join(parts)


STORIES = [story(seed) for seed in range(12)]
PAGES = [
    (f"https://{host}.example/{number}", text)
    for number, first in enumerate(STORIES)
    for host, text in (("a", first), ("b", changed(first, number)), ("c", f"{first}\n"))
]
"""Each story thrice: as it is, changed a little, and copied but for white space."""


def added_by_threads(index, texts, threads=8):
    """What an index answers to threads of which each adds all these texts, all at the same time: a list a text."""
    begin, interval = Barrier(threads), sys.getswitchinterval()

    def add(thread):
        begin.wait()
        return [index.add(f"https://{thread}.example/{number}", text) for number, text in enumerate(texts)]

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(zip(*pool.map(add, range(threads)), strict=True))
    finally:
        sys.setswitchinterval(interval)
