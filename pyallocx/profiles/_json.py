"""What the readers of profiles in JSON share."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar, Final, NoReturn

from pyallocx._core import TraceError
from pyallocx.profiles._reader import ProfileReader

__all__ = ["JsonReader", "entry"]

_MOST_BYTES: Final = 64 << 20


class JsonReader(ProfileReader):
    """A reader of a format that is one document of JSON."""

    whose: ClassVar[str]
    """Whose JSON it is, for messages."""
    once: ClassVar[frozenset[str]]
    """The keys that no object may have twice; a number never is there twice."""

    def __init__(self, weight: str | None = None) -> None:
        super().__init__(weight)
        self._text = bytearray()

    @abstractmethod
    def read(self, document: Any) -> None:
        """Read what the JSON says."""

    def feed(self, data: bytes, /) -> None:
        """Keep a piece: JSON is read as a whole."""
        self._text += data
        if len(self._text) > _MOST_BYTES:
            raise TraceError(f"expected at most {_MOST_BYTES >> 20} MiB of JSON")

    def finish(self) -> None:
        """Read it."""
        try:
            document = json.loads(
                self._text.decode(), parse_constant=_refuse_constant, object_pairs_hook=self._object
            )
        except json.JSONDecodeError as error:
            raise TraceError(
                f"line {error.lineno}, column {error.colno}: expected JSON: {error.msg}"
            ) from None
        except UnicodeDecodeError as error:
            line = self._text.count(b"\n", 0, error.start) + 1
            raise TraceError(f"line {line}: expected UTF-8") from None
        except RecursionError:
            raise TraceError("expected JSON that is less deeply nested") from None
        except ValueError as error:
            raise TraceError(f"expected the JSON of {self.whose}: {error}") from None
        finally:
            self._text.clear()
        self.read(document)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            for name in made:
                if names.count(name) > 1 and (name in self.once or name.isdigit()):
                    raise ValueError(f"{name!r} is there twice")
        return made


def entry(where: Any, path: str, key: str, kind: type) -> Any:
    """Return an entry of the type that the format gives it."""
    value: Any = where.get(key) if isinstance(where, dict) else None
    # A flag is no number, though Python says so.
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        wanted = {dict: "an object", list: "a list", int: "a whole number, 0 or more"}[kind]
        found = "nothing" if value is None else json.dumps(value)[:40]
        raise TraceError(f"{path + '.' if path else ''}{key}: expected {wanted}, found {found}")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"found {text}")
