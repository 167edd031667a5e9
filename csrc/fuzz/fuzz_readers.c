/* Any bytes through every reader of text: what must hold of them is in reader_cases.h.
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const int format = data[0] % AX_READ_FORMATS;
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

static int write_seeds(const char *directory)
{
    for (int format = 0; format < AX_READ_FORMATS; format++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", directory, ax_read_format_name(format));
        FILE *file = fopen(name, "wb");
        if (!file) {
            perror(name);
            return 1;
        }
        fputc(format, file);
        fputc(6, file);
        fputs(reader_texts[format], file);
        fclose(file);
    }
    return 0;
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
        const int format = (int)(r % AX_READ_FORMATS);
        /* Now and then a text that is another format's. */
        const char *seed =
            reader_texts[(r >> 8) % 16 ? format : (int)((r >> 16) % AX_READ_FORMATS)];
        text[0] = (char)format;
        text[1] = (char)(r >> 24);
        const size_t n = mutated(text + 2, seed, strlen(seed), &random);
        (void)LLVMFuzzerTestOneInput((const uint8_t *)text, n + 2);
        runs++;
    }
    printf("%lu texts in %.0f s, nothing found\n", runs, difftime(time(NULL), start));
    return 0;
}

#endif
