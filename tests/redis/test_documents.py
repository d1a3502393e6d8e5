"""The documents whose Python asks a Redis, and the commands that need one of their own: run as they stand there."""

import pytest

from tests.documents import (
    ROOT,
    blocks,
    named,
    pages_with,
    printed,
    run_python,
    same_output,
    steps,
    workplace,
)


@pytest.mark.parametrize("path", [ROOT / "docs" / "library.md"], ids=named)
def test_the_python_of_a_page_runs_and_gives_what_stands_below_it(path, tmp_path, redis_server):
    run_python(path, workplace(tmp_path), {"redis://127.0.0.1:6379": redis_server.url})


@pytest.mark.parametrize("path", pages_with("console"), ids=named)
def test_the_commands_of_a_page_print_what_stands_below_them(path, tmp_path, redis_server):
    addresses = {"redis://127.0.0.1:6379": redis_server.url}
    folder = workplace(tmp_path)
    for block in blocks(path, "console"):
        for step in steps(block):
            found = printed(step.command, folder, addresses)
            assert same_output(step.output, found), f"{named(path)}:{step.line}: {step.command}\n{found}"
