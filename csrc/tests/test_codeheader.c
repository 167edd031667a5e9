/* codeheader: what stands in a live chunk is what the records say, byte by byte, and whatever is
 * written over is named. */
#include "check.h"

#include <string.h>

#include "../core/codeheader.h"
#include "../core/codepolicy.h"
#include "../core/livecode.h"

#define BLOCKS 12

static ax_livecode live;
static uint32_t broken; /* heaps that wrong arithmetic broke */

static ax_code_params params_of(uint32_t policy, uint32_t wx, uint32_t header)
{
    ax_code_params params;
    ax_code_params_default(&params);
    params.page_bytes = ax_page_bytes();
    params.chunk_bytes = params.page_bytes;
    params.partitions = 2;
    params.byte_limit = policy < AX_CODE_FIRST_FIT ? 1024 : 0;
    params.policy = policy;
    params.wx = wx;
    params.header_bytes = header;
    return params;
}

static void begin(ax_code_params params)
{
    memset(&live, 0, sizeof live);
    CHECK(ax_livecode_open(&live, &params, NULL) == AX_OK);
}

static void end(void)
{
    CHECK(ax_livecode_close(&live, NULL) == AX_OK);
    CHECK(live.seam.mapped_bytes == 0 && live.books.bytes_held == 0);
}

static void content(void)
{
    ax_detail d = {0};
    const int status = ax_livecode_check(&live, &d);
    CHECK(status == AX_OK);
    if (status != AX_OK) {
        fprintf(stderr, "%s: %llx, %llx\n", d.what, (unsigned long long)d.value,
                (unsigned long long)d.low);
    }
}

static ax_code_handle take(uint64_t size)
{
    ax_code_handle handle = {0};
    const int sized = live.heap.policy->sized;
    CHECK(ax_livecode_alloc(&live, sized ? size : 0, &handle, NULL) == AX_OK);
    const uint64_t got = ax_livecode_size(&live, handle);
    CHECK(sized ? got == size : got > 0);
    if (got > size) {
        CHECK(ax_livecode_shrink(&live, handle, size, NULL) == AX_OK);
    }
    return handle;
}

static uint8_t *writable(uint64_t address)
{
    for (uint32_t i = 0; i < live.heap.chunks_alive; i++) {
        const ax_code_chunk *chunk = &live.heap.chunks[live.heap.by_address[i]];
        if (address >= chunk->base && address < chunk->base + chunk->bytes) {
            CHECK(!chunk->exec);
            return ax_at((chunk->alias ? chunk->alias : chunk->base) + address - chunk->base);
        }
    }
    CHECK(0);
    return NULL;
}

static const char *field_of(uint64_t at)
{
    static const char *const fields[] = {"end", "lower neighbour", "flags", "check word"};
    return at < 16 ? fields[at / 4] : "fill";
}

/* Changes one byte after the other of one header; each is found, named, and content again. */
static void write_over(uint64_t address, uint64_t which, uint64_t *seen)
{
    for (uint64_t at = 0; at < live.heap.params.header_bytes; at++) {
        uint8_t *byte = writable(address + at);
        const uint8_t before = *byte;
        ax_detail d = {0};
        *byte = (uint8_t)(before ^ (1u << at % 8));
        CHECK(ax_livecode_check(&live, &d) == AX_ERR_HEADER);
        CHECK(d.what && strcmp(d.what, field_of(at)) == 0);
        CHECK(d.high == which && d.value != d.low);
        CHECK(d.where == address + (at < 16 ? at / 4 * 4 : at));
        CHECK((d.value ^ d.low) == (uint64_t)(1u << at % 8) << (at < 16 ? at % 4 * 8 : 0));
        *byte = before;
        ++*seen;
    }
    content();
}

/* All headers of chunks that can be written to. */
static uint64_t write_over_all(void)
{
    uint64_t seen = 0;
    for (uint32_t place = 0; place < live.heap.chunks_alive; place++) {
        const ax_code_chunk *chunk = &live.heap.chunks[live.heap.by_address[place]];
        uint64_t which = (uint64_t)place << 32;
        for (uint32_t i = chunk->first; !chunk->exec && i != AX_NO_BLOCK;
             i = live.heap.blocks[i].higher) {
            CHECK(!live.heap.blocks[i].header_due);
            write_over(live.heap.blocks[i].start, which++, &seen);
        }
        if (!chunk->exec) {
            write_over(chunk->base + chunk->bytes - live.heap.params.header_bytes,
                       which | UINT32_MAX, &seen);
        }
    }
    return seen;
}

/* Blocks, open and sealed, and free ones between them, some freed while their chunk ran. */
static void test_every_byte(uint32_t policy, uint32_t wx, uint32_t header)
{
    begin(params_of(policy, wx, header));
    ax_code_handle handles[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        handles[i] = take(100 + 90 * (uint64_t)i);
        CHECK(ax_livecode_seal(&live, handles[i], NULL) == AX_OK);
        content();
    }
    for (int i = 1; i < BLOCKS; i += 3) {
        CHECK(ax_livecode_free(&live, handles[i], NULL) == AX_OK);
        content();
    }
    CHECK(wx == AX_WX_FLIP || write_over_all() > 0);
    for (int i = 0; i < BLOCKS; i += 3) {
        CHECK(ax_livecode_unseal(&live, handles[i], NULL) == AX_OK);
        content();
    }
    CHECK(write_over_all() >= 4 * header);
    CHECK(live.heap.counters.unmarked_header_writes == 0);
    end();
}

/* What stands there, byte by byte. */
static void test_image(void)
{
    ax_code_params params = params_of(AX_CODE_SEGREGATED, AX_WX_RWX, 20);
    params.granule_bytes = 16;
    begin(params);
    const ax_code_handle a = take(64);
    const uint64_t whole = ax_page_bytes();
    const uint8_t *base = ax_at(live.heap.chunks[0].base);
    CHECK(a.address == live.heap.chunks[0].base + 20);
    const uint8_t first[12] = {84, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
    CHECK(memcmp(base, first, sizeof first) == 0);
    const uint8_t second[12] = {(uint8_t)(whole - 20),
                                (uint8_t)((whole - 20) >> 8),
                                (uint8_t)((whole - 20) >> 16),
                                0,
                                0,
                                0,
                                0,
                                0,
                                1,
                                0,
                                0,
                                0};
    CHECK(memcmp(base + 84, second, sizeof second) == 0);
    const uint8_t last[12] = {0, 0, 0, 0, 84, 0, 0, 0, 2, 0, 0, 0};
    CHECK(memcmp(base + whole - 20, last, sizeof last) == 0);
    for (int i = 16; i < 20; i++) {
        CHECK(base[i] == 0xcc && base[84 + i] == 0xcc && base[whole - 20 + (uint64_t)i] == 0xcc);
    }
    /* The same words elsewhere have another check word: a header that was copied is found. */
    CHECK(memcmp(base + 12, base + 84 + 12, 4) != 0);
    end();
}

/* Hazard (a): a free in a chunk that runs writes nothing; what is due is written when the chunk is
 * opened, and until then nobody misses it. */
static void test_due(void)
{
    begin(params_of(AX_CODE_FIRST_FIT, AX_WX_FLIP, 16));
    ax_code_handle h[4];
    for (int i = 0; i < 4; i++) {
        h[i] = take(64);
        CHECK(ax_livecode_seal(&live, h[i], NULL) == AX_OK);
    }
    const ax_code_chunk *chunk = &live.heap.chunks[0];
    CHECK(live.heap.chunks_alive == 1 && chunk->exec && !chunk->headers_due);
    uint8_t before[32];
    memcpy(before, ax_at(h[2].address - 16), 16);
    const uint64_t attempts = live.seam.attempts;
    /* Blocks go from high to low: h[2] lies above h[3], and h[0] below the terminator. */
    CHECK(ax_livecode_free(&live, h[2], NULL) == AX_OK);
    CHECK(chunk->headers_due && live.heap.blocks[h[2].block].header_due && !chunk->terminator_due);
    CHECK(ax_livecode_free(&live, h[0], NULL) == AX_OK);
    CHECK(live.seam.attempts == attempts);
    CHECK(memcmp(before, ax_at(h[2].address - 16), 16) == 0);
    content();
    /* Joined with both: its record is gone, the terminator has another neighbour. */
    CHECK(ax_livecode_free(&live, h[1], NULL) == AX_OK);
    CHECK(chunk->terminator_due);
    content();
    ax_detail d = {0};
    live.heap.chunks[0].headers_due = 0;
    CHECK(ax_livecode_check(&live, &d) == AX_ERR_CORRUPT && strstr(d.what, "does not know"));
    live.heap.chunks[0].headers_due = 1;
    /* A refused flip leaves them due. */
    live.seam.fail_at = live.seam.attempts + 1;
    CHECK(ax_livecode_unseal(&live, h[3], NULL) == AX_ERR_NOMEM && chunk->headers_due);
    content();
    CHECK(ax_livecode_unseal(&live, h[3], NULL) == AX_OK);
    CHECK(!chunk->headers_due && !chunk->terminator_due);
    CHECK(live.heap.blocks[h[3].block].header_due == 0);
    content();
    CHECK(write_over_all() > 0);
    live.heap.blocks[h[3].block].header_due = 1;
    live.heap.chunks[0].headers_due = 1;
    CHECK(ax_livecode_check(&live, &d) == AX_ERR_CORRUPT && strstr(d.what, "can be written to"));
    live.heap.blocks[h[3].block].header_due = 0;
    live.heap.chunks[0].headers_due = 0;
    end();
}

/* Code that runs over its end hits the header of its neighbour, and the heap goes on. */
static void test_overrun(void)
{
    begin(params_of(AX_CODE_SEGREGATED, AX_WX_FLIP, 16));
    const ax_code_handle a = take(64);
    const ax_code_handle b = take(64);
    CHECK(b.address == a.address + 80);
    memset(writable(a.address), 0x90, 64 + 16 + 8);
    ax_detail d = {0};
    CHECK(ax_livecode_check(&live, &d) == AX_ERR_HEADER);
    CHECK(strcmp(d.what, "end") == 0 && d.value == 0x90909090 && d.low == 160 && d.high == 1);
    CHECK(d.where == b.address - 16);
    /* Nothing is decided by it, and what changes is right again. */
    CHECK(ax_livecode_free(&live, b, NULL) == AX_OK);
    content();
    CHECK(ax_livecode_free(&live, a, NULL) == AX_OK);
    content();
    end();
}

/* Chunks with headers due go, and their memory with them. */
static void test_chunks_go(uint32_t policy, uint32_t wx)
{
    ax_code_params params = params_of(policy, wx, 16);
    params.keep_bytes = 0;
    begin(params);
    ax_code_handle handles[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        handles[i] = take(900);
        CHECK(ax_livecode_seal(&live, handles[i], NULL) == AX_OK);
    }
    CHECK(live.heap.chunks_alive > 1);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(ax_livecode_free(&live, handles[i], NULL) == AX_OK);
        content();
    }
    CHECK(live.heap.chunks_alive == 0 || policy == AX_CODE_PARTITION || policy == AX_CODE_BUMP);
    (void)take(100);
    content();
    /* Used blocks, due headers, and one of two mappings refused: nobody writes to what is gone. */
    live.seam.fail_at = live.seam.attempts + (wx == AX_WX_DUAL ? 2 : 1);
    CHECK(ax_livecode_close(&live, NULL) == AX_ERR_NOMEM);
    content();
    end();
}

/* Headers cost no call, whatever the design. */
static void test_no_call_more(uint32_t policy, uint32_t wx)
{
    uint64_t attempts[2];
    for (int in_band = 0; in_band < 2; in_band++) {
        begin(params_of(policy, wx, 20));
        CHECK(live.heap.in_band);
        live.heap.in_band = in_band;
        uint64_t random = 5;
        ax_code_handle handles[BLOCKS] = {0};
        for (int i = 0; i < 150; i++) {
            const uint64_t r = next_random(&random);
            ax_code_handle *h = &handles[r % BLOCKS];
            if (h->address) {
                CHECK(ax_livecode_free(&live, *h, NULL) == AX_OK);
                h->address = 0;
            } else {
                *h = take(16 + (r >> 8) % 700);
                if (r >> 40 & 1) {
                    CHECK(ax_livecode_seal(&live, *h, NULL) == AX_OK);
                }
            }
            content();
        }
        attempts[in_band] = live.seam.attempts + (live.books.attempts << 32);
        end();
    }
    CHECK(attempts[0] == attempts[1]);
}

/* A limit that went wrong after all: the process lives, and the heap is known to be broken. */
static void test_wrong_arithmetic(uint32_t policy, uint32_t wx)
{
    for (uint64_t limit = 1; limit < 150; limit += 7) {
        for (uint32_t header = 0; header <= 40; header += 20) {
            begin(params_of(policy, wx, header));
            live.heap.params.byte_limit = limit;
            live.heap.params.min_payload_bytes = 64;
            int status = AX_OK;
            for (int i = 0; i < 400 && status == AX_OK; i++) {
                ax_code_handle handle = {0};
                ax_detail d = {0};
                status = ax_livecode_alloc(&live, 0, &handle, &d);
                CHECK(status == AX_OK || status == AX_ERR_CORRUPT);
                if (status == AX_OK) {
                    const uint8_t byte = 1;
                    CHECK(ax_livecode_write(&live, handle, 0, &byte, 1, &d) == AX_OK);
                    status = ax_livecode_check(&live, &d);
                    CHECK(status == AX_OK || (status == AX_ERR_CORRUPT && d.what));
                } else {
                    CHECK(d.what && strstr(d.what, "without room"));
                    CHECK(ax_livecode_check(&live, &d) == AX_ERR_CORRUPT);
                }
            }
            broken += status != AX_OK;
            end();
        }
    }
}

int main(void)
{
    static const uint32_t headers[] = {1, 4, 7, 15, 16, 20, 40};
    for (uint32_t wx = AX_WX_FLIP; wx <= AX_WX_RWX; wx++) {
        for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
            test_every_byte(policy, wx, headers[(policy + wx) % 7]);
            test_every_byte(policy, wx, policy % 2 ? 16 : 40);
            test_chunks_go(policy, wx);
            test_no_call_more(policy, wx);
        }
        for (uint32_t policy = AX_CODE_HALVING; policy <= AX_CODE_BYTE_LIMIT; policy++) {
            broken = 0;
            test_wrong_arithmetic(policy, wx);
            CHECK(broken > 0);
        }
    }
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        test_every_byte(AX_CODE_SEGREGATED, AX_WX_FLIP, headers[i]);
    }
    test_image();
    test_due();
    test_overrun();
    return check_report();
}
