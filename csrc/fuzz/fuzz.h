/* What the files of the fuzzer share. */
#ifndef AX_FUZZ_H
#define AX_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Bytes as a raw log (fuzz_rawlog.c): NULL, or what does not hold. */
const char *fuzz_rawlog(const uint8_t *data, size_t size);

#endif
