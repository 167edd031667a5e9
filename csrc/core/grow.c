#include "grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *resize_with_libc(void *context, void *memory, size_t bytes)
{
    (void)context;
    if (bytes == 0) {
        free(memory);
        return NULL;
    }
    return realloc(memory, bytes);
}

ax_resizer ax_resizer_default(void)
{
    return (ax_resizer){resize_with_libc, NULL};
}

void ax_resizer_free(const ax_resizer *resizer, void *memory)
{
    if (memory) {
        resizer->resize(resizer->context, memory, 0);
    }
}

int ax_grow_capacity(size_t capacity, size_t needed, size_t item_bytes, size_t *out)
{
    const size_t largest = SIZE_MAX / 2 / item_bytes;
    if (needed > largest) {
        return AX_ERR_OVERFLOW;
    }
    size_t grown = capacity > largest - capacity / 2 ? largest : capacity + capacity / 2;
    grown = grown < 64 ? 64 : grown;
    *out = grown < needed ? needed : grown;
    return AX_OK;
}

int ax_grow_array(const ax_resizer *resizer, void *array, size_t capacity, size_t item_bytes)
{
    void *memory;
    if (capacity == 0 || capacity > SIZE_MAX / item_bytes) {
        return AX_ERR_OVERFLOW;
    }
    /* memcpy: the caller's pointer has another type, and types must not alias. */
    memcpy(&memory, array, sizeof memory);
    memory = resizer->resize(resizer->context, memory, capacity * item_bytes);
    if (!memory) {
        return AX_ERR_NOMEM;
    }
    memcpy(array, &memory, sizeof memory);
    return AX_OK;
}
