"""The traces that come with the package, recorded by the project itself.

``python3``
    CPython without its small-object allocator (``PYTHONMALLOC=malloc``) in a small text-processing
    job with json, re and collections. The default: its free lists fill and empty most.
``sqlite3``
    SQLite's shell with a small database in memory: inserts, indices, joins, window functions,
    deletes.

The workloads are in ``benchmarks/workloads``, and ``benchmarks/record_shipped.py`` records them
again. A trace's metadata says with which program, version, command and C library it was made.
"""

from __future__ import annotations

from importlib import resources

from pyallocx.trace import Trace, load

__all__ = ["load_shipped", "shipped"]

_NAMES = ("python3", "sqlite3")


def shipped() -> list[str]:
    """Return the names of the traces that come with the package, the default one first.

    Examples
    --------
    >>> shipped()
    ['python3', 'sqlite3']
    """
    return list(_NAMES)


def load_shipped(name: str = _NAMES[0]) -> Trace:
    """Load a trace that comes with the package.

    Parameters
    ----------
    name
        One of the names that :func:`shipped` lists.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        There is no such trace; the message lists those that there are.

    Examples
    --------
    >>> load_shipped("sqlite3").metadata["program"]
    'sqlite3'
    """
    if name not in _NAMES:
        raise ValueError(f"name must be one of {', '.join(_NAMES)}, got {name!r}")
    with resources.as_file(resources.files(__name__) / f"{name}.npz") as path:
        return load(path)
