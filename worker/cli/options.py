"""Flags made from the settings, so that both have the same names, help and defaults; `--profile` of commands that need
nothing else of them; and how many processors there are for those that use all.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from simhash.errors import ProfileError
from simhash.signature.profile_file import named_profile
from simhash.signature.profiles import Profile
from worker import logs
from worker.errors import SettingsError
from worker.settings import CONFIG_VARIABLE, Settings, count_of, load, written

F = TypeVar("F", bound=Callable[..., Any])

LOGGING = ("log_level", "log_format")
INDEX = ("redis_url", "redis_timeout", "index_name")
CONTROL_GROUP = Path("/sys/fs/cgroup")
NO_DEFAULTS: Mapping[str, Any] = {}


def settings_options(names: Iterable[str] | None = None, defaults: Mapping[str, Any] = NO_DEFAULTS) -> Callable[[F], F]:
    """Decorate a command with `--config` and a flag for each setting of `names` (default: all).

    Args:
        defaults: where the command's differ from the settings' own.
    """
    wanted = list(Settings.model_fields if names is None else names)

    def decorate(function: F) -> F:
        for name in reversed(wanted):
            function = _option(name, defaults.get(name, Settings.model_fields[name].default))(function)
        config = click.option(
            "--config", type=click.Path(path_type=Path), help=f"TOML file of settings (also {CONFIG_VARIABLE})"
        )
        return config(function)

    return decorate


def _option(name: str, default: object) -> Callable[[F], F]:
    field = Settings.model_fields[name]
    shown = "" if default is None else f"  [default: {written(default) or 'empty'}]"
    flag = f"--{name.replace('_', '-')}"
    return click.option(flag, name, metavar=_metavar(name), default=None, help=f"{field.description}{shown}")


class Count(click.ParamType[int]):
    """A whole number as people write it: 2000, 10k, 1.5M."""

    name = "N"

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self._range = click.IntRange(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; click's own complaint where it is none, or out of range."""
        try:
            number = count_of(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return int(self._range.convert(number, param, ctx))


def _metavar(name: str) -> str:
    """What kind of value a setting takes: its choices, or its unit."""
    annotation = str(Settings.model_fields[name].annotation)
    if choices := re.findall(r"'([^']+)'", annotation) if "Literal" in annotation else None:
        return "|".join(choices)
    kinds = {"_bytes": "BYTES", "_topic": "TOPIC", "_file": "FILE", "_url": "URL", "_address": "HOST:PORT"}
    kinds |= dict.fromkeys(("_timeout", "_deadline", "_age", "_after"), "DURATION")
    kinds |= dict.fromkeys(("documents", "_pages", "processes"), "N")
    return next((kind for end, kind in kinds.items() if name.endswith(end)), "VALUE")


def settings_of(config: Path | None, flags: Mapping[str, Any], defaults: Mapping[str, Any] = NO_DEFAULTS) -> Settings:
    """The settings that a command was given; logging is set up by them.

    Args:
        flags: those of the command line; None: not given.
        defaults: the command's own, where neither flag nor environment nor file says anything.

    Raises:
        SettingsError: one of them is wrong.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settings = load(given, config, defaults)
    logs.configure(settings.log_level, settings.log_format)
    return settings


def cores(control_group: Path = CONTROL_GROUP) -> int:
    """How many processors this program may use at once: those that it may run on or, if that is less, what the quota of
    its container comes to (control groups of version 2)."""
    allowed = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # there is none: no such file, or "max"
        quota, period = map(int, (control_group / "cpu.max").read_text().split())
        allowed = min(allowed, max(1, math.ceil(quota / period)))
    return allowed


PROFILE = click.option("--profile", metavar="NAME|FILE", help="recipe of the fingerprints: a name, or a TOML file")


def given_profile(name: str) -> Profile:
    """The profile of that name, or of that TOML file.

    Raises:
        SettingsError: there is none.
    """
    try:
        return named_profile(name)
    except ProfileError as error:
        raise SettingsError(f"profile: {error}") from error
