"""What every verb of the command line needs: strict parsing of flags, and the end for wrong use."""

from __future__ import annotations

import argparse
import errno
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyallocx._files import is_standard_output

SHIPPED = "shipped:"
"""What a TRACE argument begins with that names a shipped trace."""

OpenTrace = Callable[[str | None, str, bool | None], tuple[str, Any]]
"""From a TRACE argument (None for the default), ``"raise"`` or ``"skip"``, and whether to show
progress, to a name and a trace."""

NO_DASH = "standard output is /dev/stdout, a file of that name ./-"


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


def check_targets(
    targets: Mapping[str, str | None],
    inputs: Sequence[str],
    what: str = "trace",
    *,
    printed: str | None = None,
) -> None:
    """Make sure that every output can be written, and that none costs another file.

    Flags without a value are left out. `printed` is what standard output is for already, where that
    must stay alone.
    """
    given = {flag: target for flag, target in targets.items() if target is not None}
    for flag, target in given.items():
        if any(_is_one_file(target, path) for path in inputs):
            raise UsageError(f"{flag}: {target} is the {what} itself, it would be overwritten")
        check_target(flag, target)
        if printed is not None and is_standard_output(target):
            raise UsageError(f"{flag}: {target} is standard output, where {printed} goes")
    for (one, path), (other, second) in itertools.combinations(given.items(), 2):
        if is_standard_output(path) and is_standard_output(second):
            raise UsageError(f"{one} and {other} both go to standard output")
        if _is_one_file(path, second):
            raise UsageError(f"{one} and {other} are one file, {second}")


def _is_one_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file that writing would replace; devices and pipes do not."""
    if os.path.exists(one) and not os.path.isfile(one):
        return False
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def check_target(flag: str, target: str) -> None:
    """Make sure that an output can be written."""
    if not target:
        raise UsageError(f"{flag}: the name of the file is empty")
    if target == "-":
        # Others take it for standard output; a file of this name is in everybody's way.
        raise UsageError(f"{flag}: - is no file; {NO_DASH}")
    path = Path(target)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory", target)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such directory", str(path.parent))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written", target)


def check_picture(target: str) -> None:
    """Make sure that a picture can be made of this kind."""
    try:
        from pyallocx.plot import picture_format

        picture_format(target)
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'pyallocx[plot]'") from None
    except ValueError as exc:
        raise UsageError(f"--plot: {exc}") from exc
