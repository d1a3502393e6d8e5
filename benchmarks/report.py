"""What a run has measured: figures, and ratios with what is expected of them. No measuring lives here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Literal

from rich.console import Console

from benchmarks.machine import load_average


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity: its median over the runs, their extremes, and the load of the machine at that time."""

    benchmark: str
    name: str
    unit: str
    value: float
    low: float
    high: float
    runs: int
    load: float
    note: str = ""

    def line(self) -> str:
        """The figure for people."""
        spread = f" ({shown(self.low)} to {shown(self.high)}, {self.runs} runs)" if self.runs > 1 else " (1 run)"
        note = f"; {self.note}" if self.note else ""
        return f"{self.name}: {shown(self.value)} {self.unit}{spread}, load {self.load:.1f}{note}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quantity of which something is expected.

    Attributes:
        unit: "x" for how many times, "%" (the value is a share of 1), or a unit of its own.
        expected: what it should be at least or at most; None: nothing is.
    """

    benchmark: str
    name: str
    value: float
    unit: str
    bound: Literal[">=", "<="] = ">="
    expected: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the expectation is met; None when there is none."""
        if self.expected is None:
            return None
        return self.value >= self.expected if self.bound == ">=" else self.value <= self.expected

    def line(self) -> str:
        """The ratio for people."""
        value = self._with_unit(self.value)
        if self.expected is None:
            return f"{self.name}: {value}"
        verdict = "met" if self.met else "NOT MET"
        return f"{self.name}: expected {self.bound} {self._with_unit(self.expected)}: {value}, {verdict}"

    def _with_unit(self, value: float) -> str:
        if self.unit == "%":
            return f"{100 * value:.0f} %"
        return f"{shown(value)}x" if self.unit == "x" else f"{shown(value)} {self.unit}"


@dataclass
class Report:
    """Collects what the benchmarks measure and prints each line as it comes."""

    console: Console
    figures: list[Figure] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Begin a benchmark."""
        self.console.print(f"\n[bold]{text}[/bold]", highlight=False)

    def progress(self, text: str) -> None:
        """Say what is being done; no figure."""
        self.console.print(f"[dim]... {text}[/dim]", highlight=False, soft_wrap=True)

    def figure(self, benchmark: str, name: str, unit: str, values: Sequence[float], note: str = "") -> float:
        """Add a figure measured in so many runs; returns their median."""
        middle = float(median(values))
        found = Figure(benchmark, name, unit, middle, min(values), max(values), len(values), load_average(), note)
        self.figures.append(found)
        self._line(found.line())
        return middle

    def ratio(self, ratio: Ratio) -> None:
        """Add a ratio."""
        self.ratios.append(ratio)
        colour = {True: "green", False: "red", None: "default"}[ratio.met]
        self.console.print(f"  [{colour}]{ratio.line()}[/{colour}]", highlight=False, soft_wrap=True)

    def summary(self) -> None:
        """All expectations once more, together."""
        expected = [ratio for ratio in self.ratios if ratio.expected is not None]
        if not expected:
            return
        self.heading(f"Expectations: {sum(bool(r.met) for r in expected)} of {len(expected)} met")
        for ratio in expected:
            colour = "green" if ratio.met else "red"
            self.console.print(f"  [{colour}]{ratio.line()}[/{colour}]", highlight=False, soft_wrap=True)

    def as_json(self) -> dict[str, object]:
        """Everything, JSON-able."""
        ratios = [asdict(ratio) | {"met": ratio.met} for ratio in self.ratios]
        return {"figures": [asdict(figure) for figure in self.figures], "ratios": ratios}

    def _line(self, text: str) -> None:
        self.console.print(f"  {text}", highlight=False, soft_wrap=True)


def markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as it stands in a document."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---", *["---:"] * (len(header) - 1)], *rows)]
    return f"\n### {title}\n\n" + "\n".join(lines)


def shown(value: float) -> str:
    """A number with as many digits as it deserves: three significant ones, all of those before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
