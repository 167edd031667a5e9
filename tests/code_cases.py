"""What the tests of code traces share: how they look at a trace, and jitdumps made by hand."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyallocx as px

A, F = px.OP_ALLOC, px.OP_FREE


def load(tmp_path: Path, data: str | bytes, **options: Any) -> px.Trace:
    path = tmp_path / "code"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return px.load(path, **options)


def shape(trace: px.Trace) -> list[tuple[str, int, int]]:
    """Events as (op, object, size)."""
    return [
        ("AF"[op], object, size)
        for op, object, size in zip(
            trace.op.tolist(), trace.object.tolist(), trace.size_bytes.tolist(), strict=True
        )
    ]


def kinds(trace: px.Trace) -> list[str]:
    """Return the name of the key of each alloc."""
    assert trace.key is not None
    return [trace.metadata["key_names"][key] for key in trace.key[trace.op == A].tolist()]


def inferred(trace: px.Trace) -> dict[str, int]:
    found: dict[str, int] = trace.metadata["obtained"]["frees"]["inferred"]
    return found


def times(trace: px.Trace) -> list[int]:
    assert trace.time_ns is not None
    return trace.time_ns.tolist()


def header(order: str = "<", *, version: int = 1, size: int = 40, flags: int = 0) -> bytes:
    return struct.pack(
        f"{order}IIIIIIQQ", 0x4A695444, version, size, 62, 0xDEADBEEF, 7, 5, flags
    ).ljust(size, b"x")


def record(order: str, id: int, time: int, body: bytes) -> bytes:
    return struct.pack(f"{order}IIQ", id, 16 + len(body), time) + body


def loaded(order: str, time: int, address: int, size: int, name: bytes = b"JS:^f") -> bytes:
    body = struct.pack(f"{order}IIQQQQ", 7, 7, address, address, size, 0)
    return record(order, 0, time, body + name + b"\0" + b"\xcc" * size)


def moved(order: str, time: int, old: int, new: int, size: int) -> bytes:
    body = struct.pack(f"{order}IIQQQQQ", 7, 7, new, old, new, size, 0)
    return record(order, 1, time, body)


def a_dump(order: str = "<", **options: Any) -> bytes:
    return b"".join(
        [
            header(order, **options),
            record(order, 4, 5, b"\0" * 40),
            loaded(order, 10, 0x1000, 64, b"Builtin:Entry"),
            loaded(order, 20, 0x2000, 300),
            record(order, 2, 21, b"debug"),
            moved(order, 30, 0x1000, 0x3000, 64),
            record(order, 9, 31, b""),
            loaded(order, 40, 0x203F, 4, b"LFoo;::bar"),
            loaded(order, 50, 0x1000, 64, b""),
            record(order, 3, 60, b""),
        ]
    )


# ---- a small log of every format -----------------------------------------------------------------

V8 = """\
v8-version,11,3,244,8,-node.38,0
new,MemoryChunk,0x10000,4096
code-creation,Builtin,2,10,0x900000,768,Entry
code-creation,BytecodeHandler,0,11,0x900400,100,DivSmi
code-creation,Eval,10,12,0x5000,6, :1:1,0x77,~
code-creation,JS,11,20,0x10000,256,f a.js:1:1,0x77,^
code-creation,JS,13,30,0x10100,512,f a.js:1:1,0x77,*
"""

MAP = """\
18c4000 300 Builtin:Entry
7f001000 100 JS:^f a.js:1:1
b60d09b23ce 275 JS:~g a.js:2:1
7F001100 40 py::main:/a b.py
7f001200 40 void Program::Main()[Tier0]
7f0010ff 2 JS:*f a.js:1:1
"""

COMPILATION = """\
<?xml version='1.0' encoding='UTF-8'?>
<hotspot_log version='160 1' process='12551' time_ms='1796040876549'>
<tty>
<nmethod compile_id='1' compiler='c1' level='3' size='760' address='0x00007f0000001010' \
method='A &lt;init&gt; ()V' stamp='0.035'/>
the program says <nmethod here
<nmethod compile_id='2' compile_kind='c2n' compiler='' level='0' size='96' \
address='0x7f0000002010' stamp='0.036'/>
<make_not_entrant thread='1' compile_id='1' compiler='c1' level='3' stamp='0.040'/>
<make_not_entrant thread='1' zombie='1' compile_id='1' stamp='0.041'/>
<make_unloaded thread='1' compile_id='1' stamp='0.042'/>
<nmethod compile_id='3' compile_kind='osr' compiler='c2' level='4' size='100' \
address='0x7f0000001000' stamp='1.5'/>
<nmethod compile_id='4' compiler='c2' size='10' address='0x7f0000005000' stamp='1.25'/>
"""


def install(time: int, name: str, level: int = 3, osr: str = "") -> str:
    return (
        f"[{time}ns][info ][nmethod,install      ] Installing {osr}method ({level}) "
        f"{name}([II)I {'@ 62' if osr else ''}\n"
    )


def used(time: int, kib: int, heap: str = "CodeCache") -> str:
    return (
        f"[{time}ns][debug][compilation,codecache] {heap}: size=20480Kb used={kib}Kb "
        f"max_used=9999Kb free=17723Kb\n"
    )


def flush(time: int, name: str, level: int = 3, osr: int = 0) -> str:
    return (
        f"[{time}ns][debug][codecache            ] Flushing nmethod    354/0x00007f7b84fe6d08, "
        f"level={level}, osr={osr}, cold=0, epoch=2, cold_count=2147483647. Cache capacity: 2816Kb,"
        f" free space: 17720Kb. method {name} (c1)\n"
    )


XLOG = install(10, "A.f") + used(11, 100) + install(20, "B.f") + used(21, 103)

JVMTI = """\
A,10,0x1000,29,stub
A,20,0x2000,932,nmethod
F,30,0x2000
A,25,0x2000,8,nmethod
A,40,0x1010,8,nmethod
"""

LUAJIT = """\
B,0.000863,nil
A,0.000929,0x55b74c8aff79,120,tr1,loop
A,0.0010,0x55b74c8afb0d,1132,tr2,root
B,0.001100,nil
A,0.001200,0x55b74c8afb00,16,tr3,root
X,0.001300,flush
X,0.001400,flush
A,0.001500,0x55b74c8aff79,9,tr1,root
"""

SAMPLES: dict[str, bytes] = {
    "v8": (V8 + "code-move,0x10000,0x10400\ndelete,MemoryChunk,0x10000\n").encode(),
    "jitdump": a_dump(),
    "perfmap": MAP.encode(),
    "hotspot_xlog": (XLOG + flush(30, "f")).encode(),
    "hotspot_logcompilation": COMPILATION.encode(),
    "jvmti": JVMTI.encode(),
    "luajit": LUAJIT.encode(),
}
