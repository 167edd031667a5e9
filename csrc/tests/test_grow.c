/* grow: capacities, contents that move along, books that add up, and every refusal survived. */
#include "check.h"

#include "../core/grow.h"

static void test_capacities(void)
{
    size_t capacity = 0;
    CHECK(ax_grow_capacity(0, 1, 8, &capacity) == AX_OK && capacity == 16);
    CHECK(ax_grow_capacity(0, 17, 8, &capacity) == AX_OK && capacity == 17);
    CHECK(ax_grow_capacity(64, 65, 8, &capacity) == AX_OK && capacity == 96);
    CHECK(ax_grow_capacity(64, 1000, 8, &capacity) == AX_OK && capacity == 1000);
    CHECK(ax_grow_capacity(64, SIZE_MAX / 8, 8, &capacity) == AX_ERR_OVERFLOW);
    CHECK(ax_grow_capacity(SIZE_MAX / 20, SIZE_MAX / 18, 8, &capacity) == AX_OK);
    CHECK(capacity <= SIZE_MAX / 16 && capacity >= SIZE_MAX / 18);
}

/* One item more at a time; each call of the backing is refused once. */
static void test_refusals(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    uint32_t *items = NULL;
    size_t capacity = 0;
    uint64_t refused = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        const size_t before = capacity;
        const uint32_t *const at = items;
        books.fail_at = books.attempts + 1;
        if (ax_grow_array(&books, &items, &capacity, i + 1, sizeof *items) != AX_OK) {
            CHECK(i == before && capacity == before && items == at);
            CHECK(ax_grow_array(&books, &items, &capacity, i + 1, sizeof *items) == AX_OK);
            refused++;
        }
        CHECK(capacity > i && books.bytes_held == capacity * sizeof *items);
        items[i] = i;
    }
    CHECK(refused > 8 && refused < 15);
    CHECK(books.failed[AX_CALL_MALLOC] == 1 && books.failed[AX_CALL_REALLOC] == refused - 1);
    books.fail_at = books.attempts + 1;
    CHECK(ax_grow_to(&books, &items, &capacity, 500, sizeof *items) == AX_ERR_NOMEM);
    CHECK(capacity > 500 && items[999] == 999);
    CHECK(ax_grow_to(&books, &items, &capacity, 500, sizeof *items) == AX_OK);
    CHECK(capacity == 500 && books.bytes_held == 500 * sizeof *items);
    for (uint32_t i = 0; i < 500; i++) {
        CHECK(items[i] == i);
    }
    /* What has no size is refused before the backing is asked. */
    const uint64_t attempts = books.attempts;
    CHECK(ax_grow_to(&books, &items, &capacity, 0, sizeof *items) == AX_ERR_OVERFLOW);
    CHECK(ax_grow_to(&books, &items, &capacity, SIZE_MAX / 4, 4) == AX_ERR_OVERFLOW);
    CHECK(ax_grow_array(&books, &items, &capacity, SIZE_MAX / 4, 4) == AX_ERR_OVERFLOW);
    CHECK(books.attempts == attempts && capacity == 500 && items[499] == 499);
    ax_grow_free(&books, &items, &capacity, sizeof *items);
    CHECK(items == NULL && capacity == 0 && books.bytes_held == 0);
    ax_grow_free(&books, &items, &capacity, sizeof *items); /* twice is nothing */
    CHECK(books.calls[AX_CALL_MALLOC] == 1 && books.calls[AX_CALL_FREE] == 1);
}

static void test_zeroed(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    uint64_t *items = NULL;
    books.fail_at = 1;
    CHECK(ax_grow_zeroed(&books, &items, 100, sizeof *items) == AX_ERR_NOMEM && items == NULL);
    CHECK(ax_grow_zeroed(&books, &items, SIZE_MAX / 8, sizeof *items) == AX_ERR_OVERFLOW);
    CHECK(items == NULL && books.bytes_held == 0);
    CHECK(ax_grow_zeroed(&books, &items, 100, sizeof *items) == AX_OK);
    CHECK(books.bytes_held == 800);
    uint64_t any = 0;
    for (size_t i = 0; i < 100; i++) {
        any |= items[i];
    }
    CHECK(any == 0);
    size_t count = 100;
    ax_grow_free(&books, &items, &count, sizeof *items);
    CHECK(items == NULL && count == 0 && books.bytes_held == 0);
}

int main(void)
{
    test_capacities();
    test_refusals();
    test_zeroed();
    return check_report();
}
