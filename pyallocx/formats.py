"""The one table of all formats that can be read or written, with what each of them carries."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal

__all__ = ["CARRIES", "Format", "formats"]

Carried = Literal["yes", "no", "some"]

CARRIES: Final = ("order", "threads", "time", "sizes", "alignment", "calls", "sites", "arenas")
"""What a format can carry, in the order of the table."""


@dataclass(frozen=True)
class Format:
    """A format. What it carries is ``"yes"``, ``"no"``, or ``"some"``: where the file has it."""

    name: str
    """What ``format=`` takes; of one name there may be a trace and a profile."""
    kind: Literal["trace", "code", "profile"]
    written_by: str
    order: Carried
    threads: Carried
    time: Carried
    sizes: Carried
    alignment: Carried
    calls: Carried
    """Which function was called: the column ``call``."""
    sites: Carried
    """Call sites or stacks: the column ``key``."""
    arenas: Carried
    read: bool
    write: bool
    note: str


def _table() -> tuple[Format, ...]:
    """Make the table of rows; a trace has order and sizes, a profile sizes alone."""
    rows: list[Format] = []

    def trace(
        name: str, written_by: str, carries: str = "", note: str = "", use: str = "r"
    ) -> None:
        marks = dict.fromkeys(CARRIES[1:], "no") | {"sizes": "yes"}
        for word in carries.split():
            marks[word.removesuffix("?")] = "some" if word.endswith("?") else "yes"
        rows.append(_row(name, "trace", written_by, marks, note, use))

    def code(name: str, written_by: str, time: str = "yes", note: str = "") -> None:
        marks = dict.fromkeys(CARRIES[1:], "no") | {"sizes": "yes", "time": time}
        rows.append(_row(name, "code", written_by, marks, note, "r"))

    def profile(name: str, written_by: str, note: str = "", use: str = "r") -> None:
        marks = dict.fromkeys(CARRIES, "no") | {"sizes": "yes"}
        rows.append(_row(name, "profile", written_by, marks, note, use))

    trace(
        "npz",
        "pyallocx",
        "threads time? alignment? calls? sites? arenas?",
        "all columns, metadata and asides; memory-mapped where not compressed",
        "rw",
    )
    trace(
        "rawlog",
        "pyallocx record",
        "threads time alignment? calls sites?",
        "what the recorder leaves; calls that failed and the like become asides",
    )
    trace(
        "aosp",
        "Android's malloc_debug and memory_replay",
        "threads time? alignment? calls",
        "posix_memalign and aligned_alloc are written as memalign",
        "rw",
    )
    trace(
        "csv",
        "pyallocx",
        "threads time? alignment? calls? sites? arenas?",
        "all columns, a row an event",
        "rw",
    )
    trace(
        "parquet",
        "pyallocx",
        "threads time? alignment? calls? sites? arenas?",
        "all columns and metadata; by pyarrow: extra parquet",
        "rw",
    )
    trace(
        "c",
        "pyallocx",
        "threads? alignment?",
        "a C header with an array, for benchmarks; a slot for each live object",
        "w",
    )
    trace("mtrace", "glibc's mtrace", "", "two lines a realloc; calloc is a malloc")
    trace(
        "logalloc",
        "Firefox's logalloc",
        "threads alignment? calls",
        "plain or munged (#slot pointers); several processes in one file",
    )
    trace(
        "ltrace",
        "ltrace -e malloc+free+...",
        "threads? time? alignment? calls",
        "where posix_memalign puts its answer is not in the file",
    )
    trace(
        "valgrind",
        "valgrind --trace-malloc=yes",
        "alignment? calls",
        "the process is kept as the thread",
    )
    trace("utrace", "jemalloc's utrace", "calls", "the process is kept as the thread")
    trace("wee_alloc", "the traces of wee_alloc")
    trace("rep", "the CS:APP malloc lab (.rep)", "", "the counts of its header are checked")
    trace(
        "heaptrack",
        "heaptrack --raw",
        "time sites",
        "a realloc is a free and an alloc; memalign is not recorded",
    )
    trace(
        "heaptrack_interpreted",
        "heaptrack",
        "time sites",
        "which object a free ends is lost: the last of its size and stack",
    )
    trace("minimalloc", "minimalloc and idealloc (CSV)", "", "steps, of which the order is kept")
    trace("malloc_sql", "bionic's malloc benchmark", "alignment? calls")
    trace(
        "memray",
        "memray",
        "threads calls sites",
        "by memray's own reader: extra memray",
    )
    code("v8", "node --log-code", note="pages that were given back end their code")
    code("jitdump", "perf's jitdump")
    code("perfmap", "perf's perf-PID.map", "no")
    code("hotspot_xlog", "java -Xlog:codecache*,nmethod*")
    code("hotspot_logcompilation", "java -XX:+LogCompilation")
    code("jvmti", "our JVMTI agent")
    code("luajit", "LuaJIT's jit.attach")
    profile("text", "pyallocx, and anybody: lines 'size count'", "", "rw")
    profile("scudo", "malloc_info of scudo")
    profile("glibc-free", "malloc_info of glibc", "free chunks, not requests")
    profile("jemalloc", "malloc_stats_print of jemalloc as JSON")
    profile("memcached", "memcached's 'stats sizes' and 'stats slabs'")
    profile("fleet", "fleetbench")
    profile("heaptrack", "heaptrack_print -H")
    profile("dhat", "valgrind --tool=dhat", "means of call sites")
    profile("bpftrace", "bpftrace: hist(), lhist(), counts by size", "upper ends of ranges")
    profile("memleak", "memleak of bcc", "means of call sites; requests with -a")
    return tuple(rows)


def _row(
    name: str,
    kind: Literal["trace", "code", "profile"],
    written_by: str,
    marks: dict[str, str],
    note: str,
    use: str,
) -> Format:
    return Format(
        name=name,
        kind=kind,
        written_by=written_by,
        read="r" in use,
        write="w" in use,
        note=note,
        **({"order": "yes"} | marks),  # type: ignore[arg-type]
    )


_FORMATS: Final = _table()


def formats() -> tuple[Format, ...]:
    """Return all formats that can be read or written, with what each carries.

    Files are recognised by content; inside gzip, zip, zstd, xz and bzip2, too.

    Returns
    -------
    tuple of Format
        With the fields ``name``, ``kind`` (``"trace"``: ordered events; ``"code"``: of code that a
        JIT made; ``"profile"``: sizes without order), ``written_by``; ``order``, ``threads``,
        ``time``, ``sizes``, ``alignment``, ``calls``, ``sites`` and ``arenas``, each ``"yes"``,
        ``"no"`` or ``"some"`` (where the file has it); ``read``, ``write`` and ``note``.

    Examples
    --------
    >>> import pyallocx as px
    >>> aosp = next(f for f in px.formats() if f.name == "aosp")
    >>> aosp.order, aosp.threads, aosp.time, aosp.write
    ('yes', 'yes', 'some', True)
    """
    return _FORMATS


def rows() -> list[dict[str, object]]:
    """Return the table as rows that JSON can hold."""
    return [asdict(one) for one in _FORMATS]


def markdown() -> str:
    """Return the table as it stands in the documents."""
    titles = ("format", "kind", "written by", *CARRIES, "use", "note")
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for one in _FORMATS:
        marks = [{"no": "", "some": "(x)", "yes": "x"}[getattr(one, name)] for name in CARRIES]
        cells = (f"`{one.name}`", one.kind, one.written_by, *marks, use_of(one), one.note)
        lines.append(f"| {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def use_of(one: Format) -> str:
    """Return what can be done with a format, in words."""
    return " ".join(word for word, can in (("read", one.read), ("write", one.write)) if can)
