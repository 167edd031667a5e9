/* The limit of any replay: one pass over the columns it needs, doing nothing with them but a sum. */
#include <stddef.h>
#include <stdint.h>

uint64_t scan(const uint8_t *op, const uint32_t *object, const uint64_t *size_bytes, size_t events);

uint64_t scan(const uint8_t *op, const uint32_t *object, const uint64_t *size_bytes, size_t events)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < events; i++) {
        sum += op[i] + object[i] + size_bytes[i];
    }
    return sum;
}
