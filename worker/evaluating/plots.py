"""What `evaluate` has found, drawn: PNG files of one look, made without touching matplotlib's global state.

    <profile>-<version>-over-k.png      recall and precision of the fingerprint alone, at every Hamming distance
    <profile>-<version>-distances.png   how far apart near-duplicates and strangers are, by gate and by verifier
    <profile>-<version>-recall.png      recall for each language and Jaccard band
    profiles.png                        recall by Jaccard similarity, the profiles beside each other (from two on)

matplotlib is the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullLocator
from numpy.typing import NDArray

from simhash.evaluation import PairClass
from simhash.evaluation.figures import ALL
from worker.evaluating.assessment import Assessment

INK, QUIET, RULE = "#1f2933", "#7b8794", "#d9dfe5"
BLUE, ORANGE = "#1f6fb4", "#d9622b"
SERIES = (BLUE, ORANGE, "#3f8f5f", "#7a5ba6", "#946b2d")
"""Told apart by people with any colour vision, and each line is named where it ends."""
DASHES = ("-", "--", ":")
"""When the colours are used up they come again, dashed."""
DPI = 110
LANGUAGES_SHOWN = 14
FLOOR = 0.5
"""Where nothing stands on a logarithmic scale of counts."""
WIDE_BITS = 72
DARK_SHARE = 0.75
"""Above it the table's blue takes white ink."""


def draw(found: Sequence[Assessment], directory: Path) -> list[Path]:
    """Draw all plots into `directory`, which is made if need be; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    return [_saved(figure, directory / f"{name}.png") for name, figure in _figures(found)]


def _figures(found: Sequence[Assessment]) -> Iterator[tuple[str, Figure]]:
    for each in found:
        name = each.profile.label.replace("/", "-")
        yield f"{name}-over-k", over_k(each)
        yield f"{name}-distances", distances(each)
        yield f"{name}-recall", recall(each)
    if len(found) > 1:
        yield "profiles", side_by_side(found)


def _saved(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=DPI, facecolor="white")
    return path


def over_k(found: Assessment) -> Figure:
    """Recall and precision of the fingerprint alone at each distance, and where the whole rule stands."""
    counted, shipped = found.histograms.gate, found.shipped.answered[ALL]
    last = min(max(16, found.profile.reach + 4), counted.shape[1] - 1)
    right = np.cumsum(counted[PairClass.POSITIVE])[: last + 1]
    wrong = np.cumsum(counted[PairClass.NEGATIVE])[: last + 1]
    ks = np.arange(last + 1)
    figure, axes = _canvas(f"Recall and precision of the fingerprint alone: profile {found.profile.label}", 8.0, 4.6)
    precision = right / np.maximum(right + wrong, 1)
    for values, colour, name in ((right / max(shipped.pairs_080, 1), BLUE, "recall"), (precision, ORANGE, "precision")):
        axes.plot(ks, values, color=colour, linewidth=2.2, marker="o", markersize=4)
        axes.annotate(name, (ks[-1], values[-1]), (8, -4), textcoords="offset points", color=colour, weight="bold")
    _mark_rule(axes, found)
    axes.set_xlim(-0.4, last + 2.6)
    axes.set_ylim(0, 1.04)
    axes.set_xticks(ks[::2])
    axes.set_xlabel("k: pairs within so many bits of fingerprint, every pair compared")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    return figure


def _mark_rule(axes: Axes, found: Assessment) -> None:
    """The profile's own figures, as rings at its reach."""
    shipped = found.shipped.answered[ALL]
    for value, colour in ((shipped.recall_080, BLUE), (shipped.precision, ORANGE)):
        if value is not None:
            axes.plot([found.profile.reach], [value], "o", color=colour, mfc="white", mew=2, markersize=9, zorder=5)
    if found.profile.verifier_reach is not None and shipped.recall_080 is not None and shipped.precision is not None:
        text = (
            f"rings: through the index, with the verifier:\nrecall {shipped.recall_080:.3f}, "
            f"precision {shipped.precision:.4f}, {shipped.false_pairs:,} false"
        )
        axes.annotate(text, (0.02, 0.05), xycoords="axes fraction", color=QUIET, fontsize=9)


def distances(found: Assessment) -> Figure:
    """Pairs by distance, near-duplicates against strangers, on a logarithmic scale."""
    panels = [(found.histograms.gate, found.profile.reach, "fingerprint")]
    if found.profile.verifier_reach is not None:
        panels.append((found.histograms.verifier, found.profile.verifier_reach, "verifier"))
    figure = _figure(4.7 * len(panels) + (0.6 if len(panels) > 1 else 1.9), 4.4)
    _title(figure, f"How far apart pairs are: profile {found.profile.label}")
    for axes, (counted, reach, name) in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        _plain(axes)
        _distance_panel(axes, counted, reach)
        axes.set_xlabel(f"bits in which the two {name}s differ")
    figure.axes[0].set_ylabel("pairs (logarithmic)", color=QUIET)
    return figure


def _distance_panel(axes: Axes, counted: NDArray[np.int64], reach: int) -> None:
    last = int(np.flatnonzero(counted.any(axis=0)).max(initial=reach))
    bits = np.arange(last + 2)
    strangers, near = counted[PairClass.NEGATIVE, : last + 2], counted[PairClass.POSITIVE, : last + 2]
    for values, colour in ((strangers, ORANGE), (near, BLUE)):
        heights = np.append(np.maximum(values, FLOOR), FLOOR)[: len(bits)]
        axes.fill_between(bits, FLOOR, heights, step="mid", color=colour, alpha=0.3, linewidth=0)
        axes.step(bits, heights, where="mid", color=colour, linewidth=1.4)
    if strangers.any():
        top = (int(strangers.argmax()), strangers.max() * 1.6)
        axes.annotate("strangers,\nJaccard < .5", top, ha="center", color=ORANGE, weight="bold", fontsize=9)
    axes.text(
        0.012,
        0.7,
        "near-duplicates,\nJaccard ≥ .8",
        transform=axes.transAxes,
        color=BLUE,
        weight="bold",
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )
    axes.set_yscale("log")
    axes.set_ylim(FLOOR, max(float(counted.max()), 1.0) * 60)
    axes.set_xlim(-1, last + 2)
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MultipleLocator(16 if last > WIDE_BITS else 8))
    axes.axvline(reach + 0.5, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"reach {reach}",
        (reach + 0.5, 1.0),
        (4, -12),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color=INK,
        fontsize=9,
    )


def recall(found: Assessment) -> Figure:
    """Recall in a table of colours: languages by Jaccard bands, pairs beneath each share."""
    rows = [(name, f) for name, f in found.shipped.answered.items() if f.pairs_080 or name == ALL]
    rows = rows[:1] + sorted(rows[1:], key=lambda row: -row[1].pairs_080)[:LANGUAGES_SHOWN]
    figure, axes = _canvas(
        f"Recall by language and Jaccard similarity: profile {found.profile.label}", 7.6, 1.5 + 0.46 * len(rows)
    )
    bands = rows[0][1].bands
    shares = np.array([[np.nan if b.recall is None else b.recall for b in f.bands[-len(bands) :]] for _, f in rows])
    axes.imshow(shares, cmap="Blues", vmin=0.3, vmax=1.15, aspect="auto")
    for row, (_, figures) in enumerate(rows):
        for column, band in enumerate(figures.bands[-len(bands) :]):
            if band.recall is not None:
                _write_share(axes, column, row, band.recall, band.pairs)
    axes.set_xticks(range(len(bands)), [f"{band.low:g} to {band.high:g}" for band in bands])
    axes.set_yticks(range(len(rows)), ["all" if name == ALL else name for name, _ in rows])
    axes.grid(visible=False)
    axes.set_xticks(np.arange(len(bands) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("Jaccard similarity of the pair")
    return figure


def _write_share(axes: Axes, column: int, row: int, share: float, pairs: int) -> None:
    dark = share > DARK_SHARE
    axes.text(column, row, f"{share:.1%}", ha="center", va="bottom", fontsize=10, color="white" if dark else INK)
    colour = "#dbe7f3" if dark else INK
    axes.text(column, row + 0.06, f"of {pairs:,}", ha="center", va="top", fontsize=7.5, color=colour)


def side_by_side(found: Sequence[Assessment]) -> Figure:
    """Recall of every profile over Jaccard similarity; false pairs by the name at the line's end."""
    height = 4.6 + 0.5 * max(0, len(found) - len(SERIES))
    figure, axes = _canvas("Recall by Jaccard similarity, as the index answers", 8.6, height)
    bands = found[0].shipped.answered[ALL].bands
    ends = []
    for number, each in enumerate(found):
        colour, dashes = SERIES[number % len(SERIES)], DASHES[number // len(SERIES) % len(DASHES)]
        figures = each.shipped.answered[ALL]
        values = [np.nan if band.recall is None else band.recall for band in figures.bands]
        axes.plot(range(len(values)), values, dashes, color=colour, linewidth=2.2, marker="o", markersize=5)
        ends.append((values[0], colour, f"{each.profile.label}\nfalse pairs: {figures.false_pairs:,}"))
    for height, (value, colour, name) in zip(_apart([end[0] for end in ends]), ends, strict=True):
        axes.annotate(
            name,
            (-0.12, height),
            ha="right",
            va="center",
            color=colour,
            weight="bold",
            fontsize=9,
            annotation_clip=False,
        )
        axes.plot([-0.1, -0.02], [height, value], color=colour, linewidth=0.8, clip_on=False)
    axes.set_xlim(-1.15, len(bands) - 0.8)
    axes.set_ylim(0, 1.04)
    axes.set_xticks(range(len(bands)), [f"{band.low:g} to {band.high:g}" for band in bands])
    axes.set_xlabel("Jaccard similarity of the pair")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    return figure


def _apart(values: Sequence[float], least: float = 0.1) -> list[float]:
    """Heights for labels, `least` from each other, near the values they name."""
    heights = [0.0] * len(values)
    above = float("inf")
    for place in sorted(range(len(values)), key=lambda i: -values[i]):
        above = heights[place] = min(values[place], above - least)
    return heights


def _canvas(title: str, width: float, height: float) -> tuple[Figure, Axes]:
    figure = _figure(width, height)
    axes = figure.subplots()
    _title(figure, title)
    _plain(axes)
    return figure, axes


def _figure(width: float, height: float) -> Figure:
    """An empty one, so many inches wide and high."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))


def _title(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.015, ha="left", fontsize=12, weight="bold", color=INK)


def _plain(axes: Axes) -> None:
    """No frame; quiet ticks; thin horizontal lines behind the data."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, length=0, labelsize=9)
    axes.xaxis.label.set_color(QUIET)
