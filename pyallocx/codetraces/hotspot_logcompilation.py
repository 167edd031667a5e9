"""HotSpot's compilation log (``-XX:+UnlockDiagnosticVMOptions -XX:+LogCompilation``).

It looks like XML, but programs write into it too, and it may end anywhere: it is read by lines.

``<nmethod compile_id='1' compiler='c1' level='3' size='760' address='0x..' stamp='0.035'/>``
    Creates code. The size is that of the whole nmethod, with its header, relocations and metadata.
    The key is ``c1 level 3``, with ``osr`` where it is entered in a loop; ``native`` for wrappers
    of native methods.
``<make_not_entrant compile_id='5' stamp='0.366'/>``
    The code is not to be entered again. It still takes up its memory, and nothing tells when that
    is given back: no free. Counted as ``made_not_entrant`` (or ``made_zombie``,
    ``made_unloaded``).

A VM that ends closes the log with ``</hotspot_log>``. One that was killed does not: a log that was
opened and not closed, but ends with a whole line, is counted as ``unclosed_logs``. One that ends
inside a line was cut off, and is refused (``truncated``).

A death is inferred when later code overlaps. Stamps have milliseconds.
"""

from __future__ import annotations

import re

from pyallocx.codetraces._reader import LineReader, Refused, decimal_ns, number

__all__ = ["LogCompilationReader"]

_ATTRIBUTE = re.compile(rb"\s([\w]+)='([^'<>]*)'", re.ASCII)
_ELEMENT = re.compile(rb"<\w+(?:\s+\w+='[^'<>]*')*\s*/>\s*", re.ASCII)
_FIRST = re.compile(rb"^(<hotspot_log |<nmethod compile_id=')", re.MULTILINE)
_STAMP = re.compile(rb"(\d+)[.,](\d{1,18})", re.ASCII)


def recognise(head: bytes) -> int | None:
    """Return where the first line of the format begins."""
    found = _FIRST.search(head)
    return found.start() if found else None


class LogCompilationReader(LineReader):
    """Reads HotSpot's compilation log (see the module)."""

    def __init__(self, skip: bool = False) -> None:
        super().__init__(skip)
        self._opened = False
        self._closed = False

    def passed_over(self, beginning: bytes) -> bool:
        """All but what makes events may have any length."""
        return not beginning.startswith((b"<nmethod ", b"<make_"))

    def parse(self, line: bytes) -> None:
        """Read one line."""
        if line.startswith(b"<hotspot_log "):
            self._opened, self._closed = True, False
        elif line.startswith(b"</hotspot_log>"):
            self._closed = True
        if self.unended and not self._closed and not (line[:1] == b"<" and line[-1:] == b">"):
            self.cut_off("the end of the line, or </hotspot_log> before it")
        if line.startswith(b"<nmethod "):
            self._nmethod(self._attributes(line, ("compile_id", "address", "size", "stamp")))
        elif line.startswith((b"<make_not_entrant ", b"<make_unloaded ")):
            attributes = self._attributes(line, ("compile_id", "stamp"))
            self._stamp(attributes)
            if attributes.get("zombie") == b"1":
                self.met["made_zombie"] += 1
            elif line.startswith(b"<make_unloaded "):
                self.met["made_unloaded"] += 1
            else:
                self.met["made_not_entrant"] += 1

    def unended_long(self, beginning: bytes) -> None:
        """Refuse it, unless the log is closed and what a program wrote follows."""
        if not self._closed:
            super().unended_long(beginning)

    def finish(self) -> None:
        """Read the last line, and count a log that nobody closed."""
        super().finish()
        if self._opened and not self._closed:
            self.met["unclosed_logs"] += 1

    def _attributes(self, line: bytes, wanted: tuple[str, ...]) -> dict[str, bytes]:
        name = line[1:].split(None, 1)[0].decode()
        if _ELEMENT.fullmatch(line) is None:
            raise Refused("syntax", f"expected one whole element <{name} .../>")
        attributes = {key.decode(): value for key, value in _ATTRIBUTE.findall(line)}
        for key in wanted:
            if key not in attributes:
                raise Refused("syntax", f"expected <{name}> with an attribute {key}")
        return attributes

    def _stamp(self, attributes: dict[str, bytes]) -> int:
        found = _STAMP.fullmatch(attributes["stamp"])
        if found is None:
            raise Refused("syntax", "expected a stamp in seconds")
        return decimal_ns(found[1], found[2], 9)

    def _nmethod(self, attributes: dict[str, bytes]) -> None:
        time = self._stamp(attributes)
        found = re.fullmatch(rb"0x([0-9a-fA-F]+)", attributes["address"])
        size = attributes["size"]
        if found is None or not size.isdigit() or not attributes["compile_id"].isdigit():
            raise Refused("syntax", "expected <nmethod> with numbers as compile_id, address, size")
        address, size_bytes = number(found[1], 16), number(size)
        kind = attributes.get("compile_kind", b"")
        compiler = attributes.get("compiler", b"")
        if kind == b"c2n" or not compiler:
            name = "native"
        else:
            name = compiler.decode("ascii", "replace")
            if "level" in attributes:
                name += f" level {attributes['level'].decode('ascii', 'replace')}"
            if kind == b"osr":
                name += " osr"
        self.check_range(address, size_bytes)
        self.at_time(time)
        self.create(address, size_bytes, name)
