"""The documents whose Python asks a Redis, and the commands that need one of their own: run as they stand there."""

import pytest

from tests.documents import REDIS, ROOT, named, pages_with, run_console, run_python, workplace


@pytest.mark.parametrize("path", [ROOT / "docs" / "library.md"], ids=named)
def test_the_python_of_a_page_runs_and_gives_what_stands_below_it(path, tmp_path, redis_server):
    run_python(path, workplace(tmp_path), {REDIS: redis_server.url})


@pytest.mark.parametrize("path", pages_with("console"), ids=named)
def test_the_commands_of_a_page_print_what_stands_below_them(path, tmp_path, redis_server):
    run_console(path, workplace(tmp_path), {REDIS: redis_server.url})
