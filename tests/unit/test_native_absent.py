"""Without the native kernel, or with one of another version, NumPy does the work and says why."""

import subprocess
import sys

import pytest

from simhash.signature.profiles import DEFAULT

TEXT = "the committee met on tuesday and decided to postpone the vote, 北京清华大学"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ("None", "simhash._native cannot be imported: "),
        ("types.SimpleNamespace(INTERFACE=0)", "simhash._native has interface 0, "),
    ],
)
def test_numpy_does_the_work_and_the_reason_is_told(found: str, reason: str) -> None:
    program = (
        "import sys, types\n"
        f"sys.modules['simhash._native'] = {found}\n"
        "from simhash import native\n"
        "from simhash.signature.profiles import DEFAULT\n"
        f"print(DEFAULT.signature({TEXT!r}, b''))\n"
        "print(native.describe())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    signature, description = done.stdout.splitlines()
    assert signature == str(DEFAULT.signature(TEXT, b""))
    assert description.startswith(f"NumPy ({reason}")
