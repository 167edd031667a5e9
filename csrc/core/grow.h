/* grow: growable arrays behind one replaceable resize function, so that a test can make the n-th
 * call fail.
 *
 * These arrays are the tools of whoever walks or reads a trace. They are not the memory that an
 * allocator under study asks for; that goes through the pages room and is counted.
 */
#ifndef AX_GROW_H
#define AX_GROW_H

#include <stddef.h>

#include "status.h"

/* resize(context, memory, bytes): as realloc, and bytes 0 frees and answers NULL. */
typedef struct ax_resizer {
    void *(*resize)(void *context, void *memory, size_t bytes);
    void *context;
} ax_resizer;

/* The C library's realloc and free. */
ax_resizer ax_resizer_default(void);

void ax_resizer_free(const ax_resizer *resizer, void *memory);

/* The capacity that follows `capacity` and holds `needed` items of `item_bytes` bytes: at least 64,
 * then half as much again. AX_ERR_OVERFLOW where that many items have no size in bytes. */
int ax_grow_capacity(size_t capacity, size_t needed, size_t item_bytes, size_t *out);

/* Makes *array (any object pointer) hold `capacity` items; the array stays as it was on
 * AX_ERR_NOMEM. */
int ax_grow_array(const ax_resizer *resizer, void *array, size_t capacity, size_t item_bytes);

#endif
