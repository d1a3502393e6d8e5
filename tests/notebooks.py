"""A notebook, run as its reader would run it: all cells in order, in one namespace; each gives what stands below it.

Only what a text shows is looked at: standard output, and the value of a cell's last expression. No kernel is started.

`python -m tests.notebooks NOTEBOOK…` writes into the notebooks what their cells give now: after a change that is meant.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.documents import ROOT

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """A notebook."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def source(cell: dict[str, Any]) -> str:
    """What stands in a cell."""
    return "".join(cell["source"])


def ran(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each cell of code, run at the top of the repository, with the outputs that it gives."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((each for each in notebook["cells"] if each["cell_type"] == "code"), 1):
        with chdir(ROOT), redirect_stdout(StringIO()) as printed:
            value = _run(source(cell), names)
        yield cell, list(_outputs(printed.getvalue(), value, number))


def _run(text: str, names: dict[str, Any]) -> Any:
    body = ast.parse(text).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if isinstance(last, ast.Expr) else None


def _outputs(printed: str, value: Any, number: int) -> Iterator[dict[str, Any]]:
    if printed:
        yield {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def rewrite(path: Path) -> None:
    """Put into a notebook what its cells give now."""
    notebook = read(path)
    for number, (cell, outputs) in enumerate(ran(notebook), 1):
        cell |= {"execution_count": number, "outputs": outputs}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rewrite(Path(argument))
