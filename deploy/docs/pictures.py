"""The pictures of docs/how-it-works.md, drawn from what the library really computes: `python -m deploy.docs.pictures`.

A test draws them again and holds the files to it, so a picture shows the bits of today's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from simhash import distance, fingerprint
from simhash.explaining import explain, feature_hashes, named_weights
from simhash.relation.tables import Table, design
from simhash.signature.profiles import DEFAULT

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MONDAY = (
    "The river has risen by two metres since Monday. The old bridge is closed to all traffic, and the ferry has "
    "stopped. Pupils of both schools stay at home until the water has fallen; the town hall opens its doors to all "
    "whose cellars are under water, and asks for blankets."
)
UPDATED = MONDAY + " Updated."
OTHERS = (
    "Knead flour, water, salt and some yeast for ten minutes, then let the dough rest for two hours in a warm place.",
    "The installer asks for a language first. It then looks for a network, and takes its address from the router.",
    "Prices of copper fell for the third week in a row, as builders in the north put off what they had planned.",
    "A lighthouse keeper's diary of 1871 was found behind a wall; it tells of storms, oranges and loneliness.",
    "The committee met on the fourth of May, approved the minutes, and chose a treasurer for two years.",
    "Sort the list, then walk it once: equal neighbours are duplicates, and nothing else has to be compared.",
)
CELL, ROW, LEFT, BITS = 9, 15, 190, 64
INK, PALE, LEAD, DIFFERENT = "#37474f", "#e3e7ea", "#1e88e5", "#e53935"


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#263238") -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def cells(y: float, value: int, colours: Sequence[str]) -> Iterator[str]:
    """The bits of a number in a row, a 1 in its place's colour."""
    for place, bit in enumerate(f"{value:0{BITS}b}"):
        colour = colours[place] if bit == "1" else PALE
        yield f'<rect x="{LEFT + place * CELL}" y="{y}" width="{CELL - 1}" height="{ROW - 3}" fill="{colour}"/>'


def framed(y: float, places: Iterable[int]) -> Iterator[str]:
    """A red frame around each of these bits."""
    for place in places:
        yield (
            f'<rect x="{LEFT + place * CELL - 1}" y="{y - 1}" width="{CELL + 1}" height="{ROW - 1}" fill="none" '
            f'stroke="{DIFFERENT}" stroke-width="2"/>'
        )


def places_of(value: int) -> list[int]:
    """Where a number's bits are 1, counted from the left."""
    return [place for place, bit in enumerate(f"{value:0{BITS}b}") if bit == "1"]


def image(height: float, parts: Iterable[str]) -> str:
    """A picture on white, for dark pages too."""
    width = LEFT + BITS * CELL + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def of_fingerprint() -> str:
    """Features, the bits of their hashes, the sums, and the fingerprint; below it that of a text with a word more."""
    return image(ROW * 22 + 60, _fingerprint_parts())


def _fingerprint_parts() -> Iterator[str]:
    found = explain(MONDAY, UPDATED, DEFAULT)
    weights = named_weights(MONDAY, DEFAULT)
    heaviest = sorted(weights, key=lambda feature: (-weights[feature], feature))[:8]
    y = 20.0
    yield text(LEFT, y, "the 64 bits of each feature's hash (1 is dark)")
    for feature, hashed in zip(heaviest, feature_hashes(heaviest, DEFAULT).tolist(), strict=True):
        y += ROW
        yield text(LEFT - 8, y + 9, f"{' '.join(feature)}   weight {weights[feature]:g}", "end")
        yield from cells(y, hashed, [INK] * BITS)
    y += ROW * 1.6
    yield text(LEFT, y, f"… and of {len(weights) - len(heaviest)} features more")
    yield from _sums(y + ROW, found.sums[0])
    y += ROW * 7
    for name, value in zip(("its fingerprint", "with a word more"), found.fingerprints, strict=True):
        yield text(LEFT - 8, y + 9, name, "end")
        yield from cells(y, value or 0, [INK] * BITS)
        y += ROW
    one, other = (value or 0 for value in found.fingerprints)
    yield from framed(y - ROW, places_of(one ^ other))
    yield text(LEFT, y + 12, f"{distance(one, other)} bits differ", colour=DIFFERENT)


def _sums(y: float, sums: Sequence[float]) -> Iterator[str]:
    """A bar for each bit, up where the weights of the features that have it outweigh the others."""
    yield text(LEFT - 8, y + ROW * 2 + 4, "sum of the weights", "end")
    largest, middle = max(map(abs, sums)), y + ROW * 2
    for place, value in enumerate(sums):
        height = round(abs(value) / largest * ROW * 2, 1)
        top, colour = (middle - height, INK) if value > 0 else (middle, "#b0bec5")
        yield f'<rect x="{LEFT + place * CELL}" y="{top}" width="{CELL - 1}" height="{height}" fill="{colour}"/>'


def of_tables() -> str:
    """The three tables of design `3` over seven texts, and where a text that is like one of them is looked up."""
    stored = {f"page {n}": fingerprint(each) or 0 for n, each in enumerate((MONDAY, *OTHERS), 1)}
    asked = fingerprint(UPDATED) or 0
    parts = [
        part
        for n, table in enumerate(design("3").tables)
        for part in _table(20 + n * ROW * 11, n, table, stored, asked)
    ]
    return image(20 + 3 * ROW * 11, parts)


def _table(y: float, number: int, table: Table, stored: dict[str, int], asked: int) -> Iterator[str]:
    lead = [LEAD if place < table.prefix else INK for place in range(BITS)]
    reading = "and at each prefix one bit away" if table.radius else "at its own prefix"
    yield text(LEFT, y, f"table {number + 1}: sorted by {table.prefix} leading bits, read {reading}")
    y += 6
    yield text(LEFT - 8, y + 9, "looked up", "end", DIFFERENT)
    yield from cells(y, table.permute(asked), lead)
    y += ROW + 4
    for name, value in sorted(stored.items(), key=lambda each: table.permute(each[1])):
        met = ((value ^ asked) & table.lead).bit_count() <= table.radius
        yield text(LEFT - 8, y + 9, f"{name}: met" if met else name, "end", DIFFERENT if met else "#263238")
        yield from cells(y, table.permute(value), lead)
        if met:
            yield from framed(y, places_of(table.permute(value ^ asked)))
        y += ROW


PICTURES = {"fingerprint.svg": of_fingerprint, "tables.svg": of_tables}

if __name__ == "__main__":
    for name, drawn in PICTURES.items():
        (IMAGES / name).write_text(drawn(), encoding="utf-8")
