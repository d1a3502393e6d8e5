"""The documents whose Python asks a Redis, on a real one."""

import pytest

from tests.documents import ROOT, named, run_python, workplace


@pytest.mark.parametrize("path", [ROOT / "docs" / "library.md"], ids=named)
def test_the_python_of_a_page_runs_and_gives_what_stands_below_it(path, tmp_path, redis_server):
    run_python(path, workplace(tmp_path), {"redis://127.0.0.1:6379": redis_server.url})
