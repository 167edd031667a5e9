#include "grow.h"

#include <string.h>

/* The caller's pointer has another type, and types must not alias: memcpy. */
static uint64_t load_pointer(const void *array)
{
    void *memory;
    memcpy(&memory, array, sizeof memory);
    return (uint64_t)(uintptr_t)memory;
}

static void store_pointer(void *array, uint64_t address)
{
    void *memory = ax_at(address);
    memcpy(array, &memory, sizeof memory);
}

static size_t most_items(size_t item_bytes)
{
    return SIZE_MAX / 2 / item_bytes;
}

int ax_grow_capacity(size_t capacity, size_t needed, size_t item_bytes, size_t *out)
{
    const size_t most = most_items(item_bytes);
    if (needed > most) {
        return AX_ERR_OVERFLOW;
    }
    size_t grown = capacity > most - capacity / 2 ? most : capacity + capacity / 2;
    grown = grown < 16 ? 16 : grown;
    *out = grown < needed ? needed : grown;
    return AX_OK;
}

int ax_grow_to(ax_seam *books, void *array, size_t *capacity, size_t wanted, size_t item_bytes)
{
    if (wanted == 0 || wanted > most_items(item_bytes)) {
        return AX_ERR_OVERFLOW;
    }
    uint64_t address = load_pointer(array);
    const int status = address ? ax_seam_realloc(books, address, *capacity * item_bytes,
                                                 wanted * item_bytes, &address)
                               : ax_seam_malloc(books, wanted * item_bytes, &address);
    if (status == AX_OK) {
        store_pointer(array, address);
        *capacity = wanted;
    }
    return status;
}

int ax_grow_zeroed(ax_seam *books, void *array, size_t count, size_t item_bytes)
{
    void *memory = NULL;
    size_t capacity = 0;
    const int status = ax_grow_to(books, &memory, &capacity, count, item_bytes);
    if (status == AX_OK) {
        memset(memory, 0, count * item_bytes);
        memcpy(array, &memory, sizeof memory);
    }
    return status;
}

void ax_grow_free(ax_seam *books, void *array, size_t *capacity, size_t item_bytes)
{
    const uint64_t address = load_pointer(array);
    if (address) {
        ax_seam_free(books, address, *capacity * item_bytes);
    }
    store_pointer(array, 0);
    *capacity = 0;
}
