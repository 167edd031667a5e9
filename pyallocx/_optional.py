"""Packages that only some methods need, asked for where they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["data_frame", "need_matplotlib"]


def data_frame(data: Any) -> pd.DataFrame:
    """Return a DataFrame of what pandas makes one from, for a `to_pandas`."""
    try:
        import pandas as pd
    except ImportError as exc:
        raise ImportError("to_pandas needs pandas: pip install 'pyallocx[pandas]'") from exc
    return pd.DataFrame(data)


def need_matplotlib(what: str) -> None:
    """Refuse `what`, a name of the caller's, where there is no matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as exc:
        raise ImportError(f"{what} needs matplotlib: pip install 'pyallocx[plot]'") from exc
