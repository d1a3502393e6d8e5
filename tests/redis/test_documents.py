"""The documents whose Python asks a Redis, and the commands that need one of their own: run as they stand there."""

import shlex

import pytest

from tests.documents import (
    REDIS,
    ROOT,
    named,
    our_commands,
    pages_with,
    printed,
    run_console,
    run_python,
    stand_ins,
    workplace,
)


@pytest.mark.parametrize("path", [ROOT / "docs" / "library.md"], ids=named)
def test_the_python_of_a_page_runs_and_gives_what_stands_below_it(path, tmp_path, redis_server):
    run_python(path, workplace(tmp_path), {REDIS: redis_server.url})


@pytest.mark.parametrize("path", pages_with("console"), ids=named)
def test_the_commands_of_a_page_print_what_stands_below_them(path, tmp_path, redis_server):
    run_console(path, workplace(tmp_path), {REDIS: redis_server.url})


PAGES_ALONE = [path for path in pages_with("sh") if our_commands(path, alone=True)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A workplace with all that the commands name."""
    return stand_ins(workplace(tmp_path_factory.mktemp("files")))


@pytest.mark.parametrize("path", PAGES_ALONE, ids=named)
def test_the_commands_of_a_page_that_need_but_files_end_well(path, files):
    for words in our_commands(path, alone=True):
        said = printed(f"{shlex.join(words)} || echo failed with $?", files, {})
        assert "failed with" not in said, f"{words}\n{said}"
