"""Flags made from the settings, so that both have the same names, help and defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import SecretStr

from worker import logs
from worker.settings import Settings, load

F = TypeVar("F", bound=Callable[..., Any])

LOGGING = ("log_level", "log_format")
INDEX = ("redis_url", "redis_timeout", "index_name")


def settings_options(names: Iterable[str] | None = None) -> Callable[[F], F]:
    """Decorate a command with `--config` and a flag for each setting of `names` (default: all)."""
    wanted = list(Settings.model_fields if names is None else names)

    def decorate(function: F) -> F:
        for name in reversed(wanted):
            function = _option(name)(function)
        config = click.option(
            "--config", type=click.Path(path_type=Path), help="TOML file of settings (also SIMHASH_DEDUP_CONFIG)"
        )
        return config(function)

    return decorate


def _option(name: str) -> Callable[[F], F]:
    field = Settings.model_fields[name]
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    shown = "" if default is None else f" [default: {default if default != '' else 'empty'}]"
    return click.option(f"--{name.replace('_', '-')}", name, metavar="VALUE", default=None, help=f"{field.description}{shown}")


def settings_of(config: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings that a command was given; logging is set up by them.

    Raises:
        SettingsError: one of them is wrong.
    """
    settings = load({name: value for name, value in flags.items() if value is not None}, config)
    logs.configure(settings.log_level, settings.log_format)
    return settings
