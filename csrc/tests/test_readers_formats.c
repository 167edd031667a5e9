/* the formats of readers: what each line means, what is refused, any pieces, failing memory. */
#include "check.h"

#include "reader_cases.h"

enum { A = AX_OP_ALLOC, F = AX_OP_FREE, R = AX_OP_REALLOC };

/* What the text of reader_cases.h must become; -1 ends an array. */
typedef struct expected {
    int format;
    int op[16];
    int object[16];
    int64_t size[16]; /* of what is no free */
    int thread[16];
    int call[16];
    int key[16];
} expected;

static const expected expectations[] = {
    {.format = AX_READ_LOGALLOC,
     .op = {A, A, R, A, F, A, A, A, A, F, -1},
     .object = {0, 1, 0, 2, 2, 3, 4, 5, 6, 1},
     .size = {32, 15, 84, 7, 0, 100, 64, 1, 5, 0},
     .thread = {0, 1, 0, 0, 0, 2, 2, 2, 2, 1},
     .call = {1, 2, 3, 3, 3, 5, 6, 7, 8, 11}},
    {.format = AX_READ_LTRACE,
     .op = {A, R, A, A, A, A, F, -1},
     .object = {0, 0, 1, 2, 3, 4, 0},
     .size = {16, 84, 17, 21, 15, 10, 0},
     .thread = {0, 1, 2, 2, 2, 2, 0},
     .call = {1, 3, 1, 4, 2, 7, 11}},
    {.format = AX_READ_VALGRIND,
     .op = {A, A, A, F, R, A, F, F, -1},
     .object = {0, 1, 2, 0, 2, 3, 3, 2},
     .size = {10, 100, 7, 0, 1000, 41, 0, 0},
     .thread = {0, 0, 0, 0, 0, 1, 1, 0},
     .call = {1, 7, 3, 3, 3, 10, 12, 11}},
    {.format = AX_READ_UTRACE,
     .op = {A, R, A, F, -1},
     .object = {0, 0, 1, 0},
     .size = {10, 45, 45, 0},
     .thread = {0, 0, 1, 0},
     .call = {1, 3, 3, 11}},
    {.format = AX_READ_WEE_ALLOC,
     .op = {A, A, F, A, F, -1},
     .object = {0, 1, 1, 2, 0},
     .size = {552, 120, 0, 0, 0}},
    {.format = AX_READ_REP,
     .op = {A, A, R, R, F, A, -1},
     .object = {0, 1, 0, 1, 1, 2},
     .size = {512, 128, 640, 0, 0, 5}},
    {.format = AX_READ_HEAPTRACK,
     .op = {A, A, F, -1},
     .object = {0, 1, 1},
     .size = {0x11c00, 0x64, 0},
     .key = {0, 1, 1}},
    {.format = AX_READ_HEAPTRACK_INTERPRETED,
     .op = {A, A, A, F, -1},
     .object = {0, 1, 2, 2},
     .size = {0x11c00, 0x64, 0x64, 0},
     .key = {0, 1, 1, 1}},
    {.format = AX_READ_MINIMALLOC,
     .op = {A, A, F, A, F, F, -1},
     .object = {0, 1, 0, 2, 2, 1},
     .size = {4, 2, 0, 4, 0, 0}},
    {.format = AX_READ_MALLOC_SQL,
     .op = {A, A, A, R, A, F, -1},
     .object = {0, 1, 2, 0, 3, 0},
     .size = {48, 15, 100, 64, 1, 0},
     .call = {1, 2, 7, 3, 3, 11}},
};

static void check_events(const ax_reader *r, const expected *e)
{
    const ax_read_columns *c = &r->columns;
    size_t n = 0;
    while (e->op[n] >= 0) {
        n++;
    }
    CHECK(c->events == n);
    for (size_t i = 0; i < n && i < c->events; i++) {
        CHECK(c->op[i] == e->op[i]);
        CHECK(c->object[i] == (uint32_t)e->object[i]);
        CHECK(c->size_bytes[i] == (uint64_t)e->size[i]);
        CHECK((c->thread ? c->thread[i] : 0) == (uint32_t)e->thread[i]);
        CHECK((c->call ? c->call[i] : 0) == e->call[i]);
        CHECK((c->key ? c->key[i] : 0) == (uint32_t)e->key[i]);
    }
}

static void test_samples(void)
{
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        const expected *e = &expectations[i];
        const char *text = reader_texts[e->format];
        const size_t length = strlen(text);
        for (size_t chunk = 1; chunk <= length; chunk++) {
            ax_reader r;
            CHECK(reader_read_all(&r, e->format, 0, text, length, chunk) == AX_OK);
            check_events(&r, e);
            CHECK(reader_is_valid(&r));
            CHECK(reader_released(&r));
        }
    }
}

static void read_sample(ax_reader *r, int format)
{
    const char *text = reader_texts[format];
    CHECK(reader_read_all(r, format, 0, text, strlen(text), 7) == AX_OK);
}

static void test_counts(void)
{
    ax_reader r;
    read_sample(&r, AX_READ_AOSP);
    CHECK(r.counts[AX_READ_PRESENT_BYTES] == 3);
    CHECK(reader_released(&r));
    read_sample(&r, AX_READ_LOGALLOC);
    CHECK(r.counts[AX_READ_REALLOCS_OF_NULL] == 1 && r.counts[AX_READ_REALLOCS_TO_NULL] == 1);
    CHECK(r.counts[AX_READ_FAILED_ALLOCS] == 1 && r.counts[AX_READ_FREES_OF_NULL] == 1);
    CHECK(r.counts[AX_READ_OTHER_CALLS] == 1);
    CHECK(r.columns.align_log2[5] == 6 && r.columns.align_log2[6] == 5);
    CHECK(r.tids[0] == (UINT64_C(18545) << 32 | 18545) && r.tids[2] == (UINT64_C(1) << 32 | 1));
    CHECK(reader_released(&r));
    read_sample(&r, AX_READ_LTRACE);
    CHECK(r.counts[AX_READ_NESTED_CALLS] == 1 && r.counts[AX_READ_OTHER_CALLS] == 1);
    CHECK(r.counts[AX_READ_UNFINISHED_CALLS] == 2 && r.counts[AX_READ_OTHER_LINES] == 2);
    CHECK(r.columns.align_log2[5] == 5 && !r.columns.time_ns);
    CHECK(reader_released(&r));
    read_sample(&r, AX_READ_VALGRIND);
    CHECK(r.counts[AX_READ_OTHER_LINES] == 2 && r.counts[AX_READ_USABLE_SIZES] == 1);
    CHECK(r.counts[AX_READ_FAILED_ALLOCS] == 1);
    CHECK(reader_released(&r));
}

static int is_name(const ax_reader *r, size_t key, const char *wanted)
{
    const char *p;
    size_t length;
    uint64_t address;
    return ax_heaptrack_name(r, key, &address, &p, &length) && length == strlen(wanted) &&
           (length == 0 || memcmp(p, wanted, length) == 0);
}

static void test_heaptrack(void)
{
    ax_reader r;
    const char *p;
    size_t length;
    uint64_t address;
    read_sample(&r, AX_READ_HEAPTRACK);
    CHECK(r.columns.time_ns[0] == 0 && r.columns.time_ns[1] == 10000000);
    CHECK(ax_heaptrack_name(&r, 0, &address, &p, &length) && address == 0x7fe6752f0b03);
    CHECK(ax_heaptrack_name(&r, 1, &address, &p, &length) && address == 0);
    CHECK(!ax_heaptrack_name(&r, 2, &address, &p, &length));
    CHECK(reader_released(&r));
    read_sample(&r, AX_READ_HEAPTRACK_INTERPRETED);
    CHECK(r.columns.time_ns[2] == 0 && r.columns.time_ns[3] == 20000000);
    CHECK(ax_heaptrack_keys(&r) == 2 && is_name(&r, 0, "_dl\ninit") && is_name(&r, 1, ""));
    CHECK(r.heaptrack.infos == NULL && r.heaptrack.below == NULL && r.object_keys == NULL);
    CHECK(reader_released(&r));
    /* Before version 3, strings end with their line. */
    static const char old[] = "v 10000 1\ns 12 ab\ni 1 0 1\nt 1 0\na 8 1\n+ 0\n- 0\n";
    CHECK(reader_read_all(&r, AX_READ_HEAPTRACK_INTERPRETED, 0, old, sizeof old - 1, 5) == AX_OK);
    CHECK(is_name(&r, 0, "12 ab") && r.columns.events == 2);
    CHECK(reader_released(&r));
}

static void test_ltrace_times(void)
{
    static const char of_day[] = "7 19:10:58.097766 malloc(1) = 0x10\n7 19:10:59 free(0x10) = 0\n";
    static const char relative[] = "0.000100 malloc(1) = 0x10\n 0.000300 free(0x10) = <void>\n";
    static const char since_1970[] = "1796040876.5 malloc(1) = 0x10\n";
    static const char mixed[] = "1.5 malloc(1) = 0x10\nfree(0x10) = 0\n";
    ax_reader r;
    CHECK(reader_read_all(&r, AX_READ_LTRACE, 0, of_day, sizeof of_day - 1, 9) == AX_OK);
    CHECK(r.columns.time_ns[0] == UINT64_C(69058097766000));
    CHECK(r.columns.time_ns[1] == UINT64_C(69059000000000) && r.tids[0] == 7);
    CHECK(reader_released(&r));
    CHECK(reader_read_all(&r, AX_READ_LTRACE, 0, relative, sizeof relative - 1, 9) == AX_OK);
    CHECK(r.columns.time_ns[0] == 100000 && r.columns.time_ns[1] == 400000);
    CHECK(reader_released(&r));
    CHECK(reader_read_all(&r, AX_READ_LTRACE, 0, since_1970, sizeof since_1970 - 1, 9) == AX_OK);
    CHECK(r.columns.time_ns[0] == UINT64_C(1796040876500000000));
    CHECK(reader_released(&r));
    CHECK(reader_read_all(&r, AX_READ_LTRACE, 0, mixed, sizeof mixed - 1, 9) == AX_ERR_SYNTAX);
    CHECK(reader_released(&r));
}

/* The last line of a text, or its end, is refused with `status`, or dropped as `kind` and nothing
 * else. */
typedef struct refusal {
    int format;
    const char *text;
    int status;
    enum ax_read_count kind;
} refusal;

#define SYNTAX(format, text) {format, text, AX_ERR_SYNTAX, AX_DROPPED_SYNTAX}

static const refusal refusals[] = {
    SYNTAX(AX_READ_AOSP, "1: free 0x10 5 6 7 8"),
    SYNTAX(AX_READ_AOSP, "1: free 0x10 -12"),
    SYNTAX(AX_READ_AOSP, "1: free 0x10 5 -1"),
    SYNTAX(AX_READ_AOSP, "1: malloc 0x10 5 -1"),
    SYNTAX(AX_READ_AOSP, "1: malloc 0x10 5 1 2 3"),
    SYNTAX(AX_READ_LOGALLOC, "x malloc(1)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "4294967295 malloc(1)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 4294967296 malloc(1)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 malloc(1)"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 malloc()=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 malloc(1=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 malloc(1)=0x10 x"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 malloc(1)=x"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 calloc(1)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 calloc(1;2)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 malloc(18446744073709551616)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 mallocs(1)=0x10"),
    SYNTAX(AX_READ_LOGALLOC, "1 1 memalign(9223372036854775809,5)=0x10"),
    {AX_READ_LOGALLOC, "1 1 calloc(4294967296,4294967296)=0x10", AX_ERR_OVERFLOW,
     AX_DROPPED_SIZE_OVERFLOW},
    {AX_READ_LOGALLOC, "1 1 malloc(1)=0x10\n2 1 free(0x10)", AX_ERR_EVENT_OBJECT,
     AX_DROPPED_FREE_OF_UNKNOWN},
    SYNTAX(AX_READ_LTRACE, "[pid x] malloc(1) = 0x10"),
    SYNTAX(AX_READ_LTRACE, "4294967296 malloc(1) = 0x10"),
    SYNTAX(AX_READ_LTRACE, "1 2 malloc(1) = 0x10"),
    SYNTAX(AX_READ_LTRACE, "24:00:00 malloc(1) = 0x10"),
    SYNTAX(AX_READ_LTRACE, "18446744073709551615.5 malloc(1) = 0x10"),
    SYNTAX(AX_READ_LTRACE, "malloc 1"),
    SYNTAX(AX_READ_LTRACE, "(1) = 0x10"),
    SYNTAX(AX_READ_LTRACE, "malloc(1)"),
    SYNTAX(AX_READ_LTRACE, "malloc(1 = 0x10"),
    SYNTAX(AX_READ_LTRACE, "malloc(1) = "),
    SYNTAX(AX_READ_LTRACE, "malloc(1) = 0x10 x"),
    SYNTAX(AX_READ_LTRACE, "<... malloc"),
    {AX_READ_LTRACE, "malloc(1 <unfinished ...>\n<... calloc resumed> ) = 0x10", AX_ERR_SYNTAX,
     AX_DROPPED_CALL_UNPAIRED},
    {AX_READ_LTRACE, "<... free resumed> ) = <void>", AX_ERR_SYNTAX, AX_DROPPED_CALL_UNPAIRED},
    {AX_READ_LTRACE, "posix_memalign(0x7ffc, 64, 100) = 0", AX_ERR_SYNTAX,
     AX_DROPPED_RESULT_UNSEEN},
    {AX_READ_LTRACE, "realloc(0x10, 5 <unfinished ...>", AX_ERR_EVENT_OBJECT,
     AX_DROPPED_REALLOC_OF_UNKNOWN},
    {AX_READ_LTRACE,
     "malloc(1) = 0x10\nmalloc(1) = 0x20\nrealloc(0x10, 5 <unfinished ...>\n"
     "<... realloc resumed> ) = 0x20",
     AX_ERR_EVENT_OBJECT, AX_DROPPED_REALLOC_TO_LIVE},
    SYNTAX(AX_READ_VALGRIND, "malloc(1) = 0x10"),
    SYNTAX(AX_READ_VALGRIND, "--x-- malloc(1) = 0x10"),
    SYNTAX(AX_READ_VALGRIND, "--4294967296-- malloc(1) = 0x10"),
    SYNTAX(AX_READ_VALGRIND, "--1-- malloc(1)"),
    SYNTAX(AX_READ_VALGRIND, "--1-- malloc(1) 0x10"),
    SYNTAX(AX_READ_VALGRIND, "--1-- malloc(1)malloc(1) = 0x10"),
    SYNTAX(AX_READ_VALGRIND, "--1-- realloc(0x0,1)malloc(1"),
    SYNTAX(AX_READ_VALGRIND, "--1-- memalign(al x, size 5) = 0x10"),
    SYNTAX(AX_READ_UTRACE, "1 0x10 = malloc(1)"),
    SYNTAX(AX_READ_UTRACE, "<jemalloc>:utrace: x"),
    SYNTAX(AX_READ_UTRACE, "<jemalloc>:utrace: 1 0x10 malloc(1)"),
    SYNTAX(AX_READ_UTRACE, "<jemalloc>:utrace: 1 malloc(1)"),
    SYNTAX(AX_READ_UTRACE, "<jemalloc>:utrace: 1 0x10 = free(0x10)"),
    SYNTAX(AX_READ_UTRACE, "<jemalloc>:utrace: 1 free(0x10) x"),
    SYNTAX(AX_READ_WEE_ALLOC, "Alloc 5"),
    SYNTAX(AX_READ_WEE_ALLOC, "Alloc(5"),
    SYNTAX(AX_READ_WEE_ALLOC, "Alloc(5),,"),
    SYNTAX(AX_READ_WEE_ALLOC, "Alloc(-5),"),
    SYNTAX(AX_READ_WEE_ALLOC, "Alloc(18446744073709551616),"),
    SYNTAX(AX_READ_WEE_ALLOC, "Free(18446744073709551615),"),
    {AX_READ_WEE_ALLOC, "Alloc(5),\nFree(1),", AX_ERR_EVENT_OBJECT, AX_DROPPED_FREE_OF_UNKNOWN},
    {AX_READ_WEE_ALLOC, "Alloc(5),\nFree(0),\nFree(0),", AX_ERR_EVENT_OBJECT,
     AX_DROPPED_FREE_OF_UNKNOWN},
    {AX_READ_REP, "1\n1\n1", AX_ERR_SYNTAX, AX_DROPPED_COUNT_WRONG},
    {AX_READ_REP, "1\n1\n2\n1\na 0 5", AX_ERR_SYNTAX, AX_DROPPED_COUNT_WRONG},
    {AX_READ_REP, "1\n1\n1\n1\na 0 5\nf 0", AX_ERR_SYNTAX, AX_DROPPED_COUNT_WRONG},
    SYNTAX(AX_READ_REP, "1\n1\n1\n1\na 1 5"),
    SYNTAX(AX_READ_REP, "1\n1\n0\n1\nx 1 5"),
    SYNTAX(AX_READ_REP, "1\n1\n0\n1\na 0"),
    SYNTAX(AX_READ_REP, "1\n1\n0\n1\na0 5"),
    SYNTAX(AX_READ_REP, "1\n1\n0\n1\nf 0 5"),
    SYNTAX(AX_READ_REP, "1\n1\n0\n1\na -1 5"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\n+ 5 1 10"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\n+ 5 0"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\n+ 5 0 10 6"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\n- "),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\n+5 0 10"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\n+ 10000000000000000 0 10"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\nt 10 1"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\na 5 0"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\nc ffffffffffffffff"),
    SYNTAX(AX_READ_HEAPTRACK, "v 1 3\nx z"),
    {AX_READ_HEAPTRACK, "v 1 3\nx 9 abc", AX_ERR_SYNTAX, AX_DROPPED_COUNT_WRONG},
    {AX_READ_HEAPTRACK, "# none", AX_ERR_SYNTAX, AX_DROPPED_COUNT_WRONG},
    {AX_READ_HEAPTRACK, "v 1 3\n- 10", AX_ERR_EVENT_OBJECT, AX_DROPPED_FREE_OF_UNKNOWN},
    SYNTAX(AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\n+ 0"),
    SYNTAX(AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\na 5 1"),
    SYNTAX(AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\na 5"),
    SYNTAX(AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\ni 5"),
    SYNTAX(AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\ni 5 ffffffff"),
    SYNTAX(AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\nx 1 a"),
    {AX_READ_HEAPTRACK_INTERPRETED, "v 1 3\na 5 0\n- 0", AX_ERR_EVENT_OBJECT,
     AX_DROPPED_FREE_OF_UNKNOWN},
    {AX_READ_MINIMALLOC, "", AX_ERR_SYNTAX, AX_DROPPED_COUNT_WRONG},
    SYNTAX(AX_READ_MINIMALLOC, "id,lower,upper,size\na,0,3"),
    SYNTAX(AX_READ_MINIMALLOC, "id,lower,upper,size\na,0,3,4,5"),
    SYNTAX(AX_READ_MINIMALLOC, "id,lower,upper,size\n,0,3,4"),
    SYNTAX(AX_READ_MINIMALLOC, "id,lower,upper,size\na,3,3,4"),
    SYNTAX(AX_READ_MINIMALLOC, "id,lower,upper,size\na,0,3,4x"),
    SYNTAX(AX_READ_MALLOC_SQL, "MALLOC, 0, 5, 0"),
    SYNTAX(AX_READ_MALLOC_SQL, "{ALLOC, 0, 5, 0},"),
    SYNTAX(AX_READ_MALLOC_SQL, "{MALLOC, 0, 5},"),
    SYNTAX(AX_READ_MALLOC_SQL, "{MALLOC, 0, 5, 0, 0},"),
    SYNTAX(AX_READ_MALLOC_SQL, "{MALLOC, 18446744073709551615, 5, 0},"),
    SYNTAX(AX_READ_MALLOC_SQL, "{MALLOC, 0, 5, 0}, x"),
    {AX_READ_MALLOC_SQL, "{CALLOC, 0, 4294967296, 4294967296},", AX_ERR_OVERFLOW,
     AX_DROPPED_SIZE_OVERFLOW},
    {AX_READ_MALLOC_SQL, "{MALLOC, 0, 5, 0},\n{MALLOC, 0, 5, 0},", AX_ERR_EVENT_OBJECT,
     AX_DROPPED_ALLOC_OF_LIVE},
};

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *one = &refusals[i];
        const size_t length = strlen(one->text);
        uint64_t lines = length > 0;
        for (const char *p = one->text; *p; p++) {
            lines += *p == '\n';
        }
        ax_reader r;
        const int status = reader_read_all(&r, one->format, 0, one->text, length, 3);
        if (status != one->status || r.detail.where != lines || !r.detail.what) {
            fprintf(stderr, "%s: '%s'\n", ax_read_format_name(one->format), one->text);
        }
        CHECK(status == one->status && r.detail.where == lines && r.detail.what != NULL);
        CHECK(ax_reader_feed(&r, "\n", 1) == AX_ERR_STATE);
        CHECK(reader_released(&r));
        CHECK(reader_read_all(&r, one->format, 1, one->text, length, 3) == AX_OK);
        for (int kind = AX_DROPPED_SYNTAX; kind < AX_READ_COUNTS; kind++) {
            const int also = one->format == AX_READ_REP && kind == AX_DROPPED_COUNT_WRONG;
            CHECK(also || r.counts[kind] == (kind == (int)one->kind));
        }
        CHECK(reader_is_valid(&r));
        CHECK(reader_released(&r));
    }
}

/* A free that comes between the halves of a realloc, and a realloc that failed. */
static void test_realloc_in_halves(void)
{
    static const char text[] = "1 malloc(8) = 0x10\n"
                               "1 realloc(0x10, 16 <unfinished ...>\n"
                               "2 malloc(9) = 0x10\n"
                               "1 <... realloc resumed> ) = 0x20\n"
                               "2 free(0x10) = <void>\n"
                               "1 realloc(0x20, 99 <unfinished ...>\n"
                               "1 <... realloc resumed> ) = 0\n"
                               "1 realloc(0x20, 0 <unfinished ...>\n"
                               "1 <... realloc resumed> ) = 0\n";
    static const expected e = {.op = {A, A, R, F, F, -1},
                               .object = {0, 1, 0, 1, 0},
                               .size = {8, 9, 16, 0, 0},
                               .thread = {0, 1, 0, 1, 0},
                               .call = {1, 1, 3, 11, 3}};
    ax_reader r;
    CHECK(reader_read_all(&r, AX_READ_LTRACE, 0, text, sizeof text - 1, 11) == AX_OK);
    check_events(&r, &e);
    CHECK(r.counts[AX_READ_FAILED_REALLOCS] == 1 && r.counts[AX_READ_REALLOCS_TO_NULL] == 1);
    CHECK(reader_released(&r));
}

/* Every call of every reader for memory is refused once: nothing is lost, nothing leaks. */
static void test_failing_memory(void)
{
    for (int format = 0; format < AX_READ_FORMATS; format++) {
        const char *text = reader_texts[format];
        const size_t length = strlen(text);
        ax_reader r;
        CHECK(reader_read_all(&r, format, 0, text, length, 9) == AX_OK);
        const uint64_t attempts = r.books.attempts;
        const size_t events = r.columns.events;
        CHECK(reader_released(&r));
        for (uint64_t n = 1; n <= attempts; n++) {
            CHECK(ax_reader_begin(&r, format, 0) == AX_OK);
            r.books.fail_at = n;
            const int status = reader_feed_all(&r, text, length, 9);
            if (status == AX_ERR_NOMEM) {
                CHECK(ax_reader_finish(&r) == AX_ERR_STATE);
            } else {
                /* Room that could not be given back. */
                CHECK(status == AX_OK && r.columns.events == events && n + 9 > attempts);
            }
            CHECK(reader_released(&r));
        }
    }
}

static void test_mutated(void)
{
    uint64_t random = 7;
    static char text[4096];
    for (int format = 0; format < AX_READ_FORMATS; format++) {
        const char *sample = reader_texts[format];
        const size_t length = strlen(sample);
        for (int round = 0; round < 1500; round++) {
            size_t n = 0;
            for (size_t i = 0; i < length; i++) {
                const uint64_t r = next_random(&random);
                text[n++] = sample[i];
                if (r % 64 == 0) {
                    text[n - 1] = (char)(r >> 32);
                } else if (r % 64 == 1) {
                    n--;
                } else if (r % 64 == 2) {
                    text[n++] = sample[(r >> 32) % length];
                } else if (r % 256 == 3) {
                    i = (size_t)(r >> 32) % length;
                }
                if (n > sizeof text - 2) {
                    break;
                }
            }
            const char *wrong = reader_property(format, text, n, 1 + next_random(&random) % 40);
            if (wrong) {
                fprintf(stderr, "%s: %s\n", ax_read_format_name(format), wrong);
            }
            CHECK(wrong == NULL);
        }
    }
}

/* More processes than one: each has its addresses, and none is lost at the end. */
static void test_processes(void)
{
    static char text[60000];
    size_t n = 0;
    for (int round = 0; round < 2; round++) {
        for (int pid = 1; pid <= 300; pid++) {
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  round ? "%d 1 free(#%d)\n" : "%d 1 malloc(8)=#%d\n", pid,
                                  1 + pid % 3);
        }
    }
    ax_reader r;
    CHECK(reader_read_all(&r, AX_READ_LOGALLOC, 0, text, n, 1000) == AX_OK);
    CHECK(r.columns.events == 600 && r.threads.used == 300);
    for (size_t i = 0; i < 300 && i < r.columns.events; i++) {
        CHECK(r.columns.object[300 + i] == i);
    }
    CHECK(reader_released(&r));
    /* Refused in the middle, with several address spaces about. */
    CHECK(reader_read_all(&r, AX_READ_LOGALLOC, 0, text, n - 3, 1000) == AX_ERR_SYNTAX);
    CHECK(reader_released(&r));
}

int main(void)
{
    test_samples();
    test_counts();
    test_heaptrack();
    test_ltrace_times();
    test_realloc_in_halves();
    test_refusals();
    test_failing_memory();
    test_processes();
    test_mutated();
    CHECK(ax_read_format_name(-1) == NULL && ax_read_format_name(AX_READ_FORMATS) == NULL);
    return check_report();
}
