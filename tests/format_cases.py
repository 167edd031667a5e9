"""A sample of every format of traces, with every kind of line that it has."""

import rawlog_bytes as raw
from code_cases import SAMPLES as CODE_SAMPLES

AOSP = """\
7: malloc 0x10 48 1 2
7: calloc 0x20 3 5 3 4
9: memalign 0x30 64 100 5 6
9: realloc 0x40 0x10 64 7 8 4096
7: free 0x20 9 10 -1
8: thread_done 0x0 11
"""

MTRACE = """\
= Start
@ ./t:[0x11a0] + 0x10 0xa
@ ./t:[0x11b5] < 0x10
@ ./t:[0x11b5] > 0x20 0x186a0
@ ./t:[0x1203] - 0x20
= End
"""

LOGALLOC = """\
18545 18545 malloc(32)=0x7f90495120e0
18545 18546 calloc(3,5)=0x7f9049512200
18545 18545 realloc(0x7f90495120e0,84)=0x7f9049512100
1 1 posix_memalign(64,100)=0x7f9049512100
1 1 valloc(5)=0x7f9049510000
18545 18546 free(0x7f9049512200)
1 1 jemalloc_stats()
"""

MUNGED = """\
1 1 malloc(32)=#1
1 2 malloc(33)=#2
1 1 realloc(#1,84)=#3
1 1 malloc(5)=#1
1 2 free(#2)
1 1 free(#0)
"""

# As ltrace 0.7.3 -f wrote it, of a program with threads.
LTRACE = """\
p->memalign(32, 10, 0x55610a366, 5)        = 0x55610a366380
p->free(0x55610a366380)                    = <void>
p->realloc(0, 7)                           = 0x55610a3664f0
[pid 22399] p->malloc(16 <unfinished ...>
[pid 22400] p->malloc(16 <unfinished ...>
[pid 22399] <... malloc resumed> )         = 0x7f90d0000b70
[pid 22399] p->realloc(0x7f90d0000b70, 100 <unfinished ...>
[pid 22400] <... malloc resumed> )         = 0x7f90c8000b70
[pid 22399] <... realloc resumed> )        = 0x7f90d0000b90
[pid 22400] +++ exited (status 0) +++
strlen("free(")                            = 5
"""

# As valgrind 3.19 wrote it.
VALGRIND = """\
==22391== Memcheck, a memory error detector
--22391-- memalign(al 64, size 100) = 0x4A40080
--22391-- free(0x4A40080)
--22391-- calloc(3,5) = 0x4A40170
--22391-- realloc(0x4A40170,0)free(0x4A40170)
--22391--  = 0
--22391-- realloc(0x0,7)malloc(7) = 0x4A40220
--22391-- realloc(0x4A40220,1000) = 0x4A40360
--22391-- malloc_usable_size(0x4A40360) = 1000
--22391-- _Znwm(41) = 0x4D6DCE0
--22391-- _ZdlPvm(0x4D6DCE0)
"""

UTRACE = """\
<jemalloc>:utrace: 7 0x801006000 = malloc(10)
<jemalloc>:utrace: 7 0x801007000 = realloc(0x801006000, 45)
<jemalloc>:utrace: 7 free(0x801007000)
"""

HEAPTRACK = """\
v 10400 3
x 11 /tmp/readers-ab/p
X ./p
I 1000 5e298f
m 1 -
m f linux-vdso.so.1 7fe6752ea000 0 1522
t 7fe675306b9f 0
t 7fe6752f0b03 1
+ 11c00 2 55c834fc2530
c a
+ 64 1 55c834fd4200
- 55c834fd4200
R 1d30
"""

INTERPRETED = """\
v 10400 3
X ./p
I 1000 5e298f
s 4 main
s 8 _dl_init
i 7fe675306b9f 0 1
i 7fe6752f0b03 0 2
t 1 0
t 2 1
a 11c00 2
+ 0
a 64 1
+ 1
c a
+ 1
- 1
- 1
R 1d30
"""

MINIMALLOC = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,2\n"

MALLOC_SQL = """\
// A table.
static const struct entry table[] = {
    {MALLOC, 0, 48, 0},
    {CALLOC, 1, 3, 5},
    {MEMALIGN, 2, 100, 64},
    {REALLOC, 0, 64, 1},
    {FREE, 1, 0, 0},
};
"""

TEXTS: dict[str, bytes] = {
    "aosp": AOSP.encode(),
    "mtrace": MTRACE.encode(),
    "logalloc": LOGALLOC.encode(),
    "ltrace": LTRACE.encode(),
    "valgrind": VALGRIND.encode(),
    "utrace": UTRACE.encode(),
    "wee_alloc": b"Alloc(552),\nAlloc(120),\nFree(1),\nAlloc(8)\n",
    "rep": b"20000\n2\n5\n1\na 0 512\na 1 128\nr 0 640\nf 1\nf 0\n",
    "heaptrack": HEAPTRACK.encode(),
    "heaptrack_interpreted": INTERPRETED.encode(),
    "minimalloc": MINIMALLOC.encode(),
    "malloc_sql": MALLOC_SQL.encode(),
}
"""The text formats that are read in C."""

RAWLOG = raw.Log(
    flags=raw.SITES,
    windows=[
        raw.Window(
            [
                raw.Record(raw.THREAD, 5, 0, 77),
                raw.Record(raw.MALLOC, 10, 0x1000, 48, site=0x4000),
                raw.Record(raw.MEMALIGN, 20, 0x2000, 100, align=64, site=0x4010),
                raw.Record(raw.FREE, 30, 0x1000),
            ]
        )
    ],
).to_bytes()

SAMPLES: dict[str, bytes] = TEXTS | CODE_SAMPLES | {"rawlog": RAWLOG}
"""All formats that are recognised without a package of others."""
