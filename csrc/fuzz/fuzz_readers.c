/* Any bytes through every reader of text: what must hold of them is in reader_cases.h. And as raw
 * logs of the recorder: fuzz_rawlog.c.
 *
 *     byte 0: the format    byte 1: how long the pieces are    the rest: the text
 *
 * With -DAX_FUZZ_ALONE this is a program of its own, for compilers without libFuzzer:
 *
 *     fuzz_readers seeds DIRECTORY      write a seed of every format there
 *     fuzz_readers SECONDS [SEED]       mutations of the seeds, always the same ones
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../tests/check.h"
#include "../tests/reader_cases.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const int format = data[0] % (AX_READ_FORMATS + 1);
    if (format == AX_READ_FORMATS) {
        const char *what = fuzz_rawlog(data + 1, size - 1);
        if (what) {
            fprintf(stderr, "rawlog: %s\n", what);
            abort();
        }
        return 0;
    }
    const size_t chunk = (size_t)data[1] + 1;
    const char *wrong = reader_property(format, (const char *)data + 2, size - 2, chunk);
    if (wrong) {
        fprintf(stderr, "%s: %s\n", ax_read_format_name(format), wrong);
        abort();
    }
    return 0;
}

#ifdef AX_FUZZ_ALONE

enum { MOST = 4096 };

/* Something that readers stumble over: limits of numbers, ends, other formats' signs. */
static const char *const pieces[] = {
    "\n",
    "\r\n",
    "\r",
    "\0x",
    " ",
    "\t",
    "0",
    "1",
    "-1",
    "0x",
    "0x0",
    "(nil)",
    "#",
    "=",
    "(",
    ")",
    "18446744073709551615",
    "18446744073709551616",
    "0xffffffffffffffff",
    "0x10000000000000000",
    "4294967295",
    "4294967296",
    "ffffffff",
    "65536",
    ",",
    "{",
    "}",
    "<unfinished ...>",
    "resumed>",
    "free",
    "realloc",
    "malloc(",
    "9999999999999999999999999999",
    "\xff\xfe",
    "--",
    "==",
};

static size_t mutated(char *out, const char *seed, size_t length, uint64_t *random)
{
    size_t n = 0;
    const uint64_t rare = 8 + next_random(random) % 120;
    for (size_t i = 0; i < length && n < MOST - 64; i++) {
        const uint64_t r = next_random(random);
        out[n++] = seed[i];
        switch (r % rare) {
        case 0:
            out[n - 1] = (char)(r >> 40);
            break;
        case 1:
            n--;
            break;
        case 2:
            i = (size_t)(r >> 32) % length; /* goes on elsewhere: lines doubled, lost, moved */
            break;
        case 3: {
            const char *piece = pieces[(r >> 32) % (sizeof pieces / sizeof *pieces)];
            n += (size_t)snprintf(out + n, 40, "%s", piece);
            break;
        }
        case 4:
            while (i < length && seed[i] != '\n') {
                i++; /* the rest of the line is lost */
            }
            break;
        default:
            break;
        }
    }
    return n;
}

/* Two threads that take memory, give it back, move it and ask for its size. */
static size_t raw_log_seed(unsigned char *out)
{
    static const uint64_t words[2][18] = {
        {0x1 | 0 << 16, 77ull << 32, 0x2 | 0x1000 << 16, 5 | 48ull << 32,
         0x8 | 6 << 8 | 0x2000 << 16, 6 | 100ull << 32, 0x14 | 0x1000 << 16, 7 | 96ull << 32,
         0x15 | 0x3000 << 16, 9 | 96ull << 32, 0x18 | 0x3000 << 16, 1 | 104ull << 32,
         0x10 | 0x3000 << 16, 2},
        {0x1 | 1 << 16, 78ull << 32, 0x3 | 0x1000 << 16, 90 | 48ull << 32, 0x2 | 0x80,
         1 | 7ull << 32, 0x2 | 0x40, 0, 200, 1ull << 40, 0x7fff00001000, 0x10 | 0x2000 << 16, 3},
    };
    size_t n = 0;
    out[n++] = AX_READ_FORMATS;
    out[n++] = 0; /* flags */
    out[n++] = 2; /* the clock counts nanoseconds */
    out[n++] = 1; /* two records a step */
    for (int i = 0; i < 2; i++) {
        out[n++] = sizeof words[i];
        out[n++] = 0;
        memcpy(out + n, words[i], sizeof words[i]);
        n += sizeof words[i];
    }
    return n;
}

static int write_seed(const char *directory, const char *name, const void *bytes, size_t length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) {
        perror(path);
        return 1;
    }
    return 0;
}

static int write_seeds(const char *directory)
{
    unsigned char raw[512];
    int failed = write_seed(directory, "rawlog", raw, raw_log_seed(raw));
    for (int format = 0; format < AX_READ_FORMATS; format++) {
        char text[MOST];
        text[0] = (char)format;
        text[1] = 6;
        const size_t length = strlen(reader_texts[format]);
        memcpy(text + 2, reader_texts[format], length);
        failed |= write_seed(directory, ax_read_format_name(format), text, length + 2);
    }
    return failed;
}

int main(int argc, char **argv)
{
    static char text[MOST + 2];
    if (argc == 3 && strcmp(argv[1], "seeds") == 0) {
        return write_seeds(argv[2]);
    }
    const double seconds = argc > 1 ? atof(argv[1]) : 1;
    uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned long runs = 0;
    const time_t start = time(NULL);
    while (difftime(time(NULL), start) < seconds || runs < 1000) {
        const uint64_t r = next_random(&random);
        const int format = (int)(r % (AX_READ_FORMATS + 1));
        if (format == AX_READ_FORMATS) {
            unsigned char seed[512];
            const size_t length = raw_log_seed(seed);
            for (uint64_t changes = (r >> 8) % 16; changes > 0; changes--) {
                const uint64_t change = next_random(&random);
                seed[1 + change % (length - 1)] = (unsigned char)(change >> 32);
            }
            (void)LLVMFuzzerTestOneInput(seed, length);
            runs++;
            continue;
        }
        /* Now and then a text that is another format's. */
        const char *seed =
            reader_texts[(r >> 8) % 16 ? format : (int)((r >> 16) % AX_READ_FORMATS)];
        text[0] = (char)format;
        text[1] = (char)(r >> 24);
        const size_t n = mutated(text + 2, seed, strlen(seed), &random);
        (void)LLVMFuzzerTestOneInput((const uint8_t *)text, n + 2);
        runs++;
    }
    printf("%lu inputs in %.0f s, nothing found\n", runs, difftime(time(NULL), start));
    return 0;
}

#endif
