"""What every verb of the command line needs: strict parsing of flags, and the end for wrong use."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn


class UsageError(Exception):
    """The command was used wrongly: exit 2."""


class Once(argparse.Action):
    """Take a flag once: of two values, one would be lost in silence."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given: set[str] = namespace.__dict__.setdefault("given", set())
        if self.dest in given:
            parser.error(f"{option_string} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def __init__(self, **options: Any) -> None:
        # An abbreviated flag would change its meaning when a system gains a parameter.
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise instead of leaving."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def add_switch(parser: argparse._ActionsContainer, flag: str, text: str) -> None:
    """Add a flag that is there or not."""
    parser.add_argument(flag, action=Once, nargs=0, default=False, help=text)
