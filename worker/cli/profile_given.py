"""`--profile` of commands that need nothing else of the settings."""

from __future__ import annotations

import click

from simhash.errors import ProfileError
from simhash.signature.profile_file import SUFFIX, read_profile
from simhash.signature.profiles import Profile
from simhash.signature.profiles import profile as find_profile
from worker.errors import SettingsError

PROFILE = click.option("--profile", metavar="NAME|FILE", help="recipe of the fingerprints: a name, or a TOML file")


def given_profile(name: str) -> Profile:
    """The profile of that name, or of that TOML file.

    Raises:
        SettingsError: there is none.
    """
    try:
        return read_profile(name) if name.endswith(SUFFIX) else find_profile(name)
    except ProfileError as error:
        raise SettingsError(f"profile: {error}") from error
