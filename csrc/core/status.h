/* status: what every function of the core can answer.
 *
 * A function returns 0 (AX_OK) or one of the negative codes below; outputs come last in its
 * parameter list and are left alone when the answer is not AX_OK. The numbers that belong to an
 * answer (which value, which range, at which event) travel beside it in an ax_detail:
 *
 *     code                        detail.what         value      low        high       where
 *     AX_ERR_RANGE                name of parameter   given      smallest   largest    step, or 0
 *     AX_ERR_WRONG_SIZE           -                   given      expected   -          key
 *     AX_ERR_POISON               -                   found      wanted     address    byte offset
 *     AX_ERR_EVENT_*              what is wrong       found      smallest   largest    event number
 *                                                     (smallest > largest: nothing would be right)
 *     AX_ERR_CORRUPT              the broken rule     found      expected   -          list or
 * chunk
 *     AX_ERR_HEADER               the field           found      expected   chunk<<32  address
 *                                                                           | block
 *                                                     (counted by address; block UINT32_MAX: the
 *                                                     terminator)
 */
#ifndef AX_STATUS_H
#define AX_STATUS_H

#include <stdint.h>

enum ax_status {
    AX_OK = 0,
    AX_ERR_NOMEM = -1,         /* the backing refused memory (or a test made it refuse) */
    AX_ERR_RANGE = -2,         /* a parameter is outside its range */
    AX_ERR_OVERFLOW = -3,      /* a size or a count does not fit its type */
    AX_ERR_FOREIGN = -4,       /* an address that this allocator never handed out */
    AX_ERR_STALE = -5,         /* a handle whose object was freed, its memory handed out again */
    AX_ERR_DOUBLE_FREE = -6,   /* a free of an object that is already free */
    AX_ERR_WRONG_KEY = -7,     /* a free under another key than the allocation's */
    AX_ERR_WRONG_SIZE = -8,    /* a key that came with another size before */
    AX_ERR_POISON = -9,        /* a free object was written to */
    AX_ERR_CORRUPT = -10,      /* a check walked the state and found a broken rule */
    AX_ERR_CLOSED = -11,       /* use after close */
    AX_ERR_EXPORTED = -12,     /* memory that a view still shows */
    AX_ERR_EVENT_OP = -13,     /* trace: an operation that does not exist */
    AX_ERR_EVENT_ORDER = -14,  /* trace: the k-th allocation must make object k */
    AX_ERR_EVENT_OBJECT = -15, /* trace: an object that was never allocated */
    AX_ERR_EVENT_DEAD = -16,   /* trace: an object that is already dead */
    AX_ERR_EVENT_ARENA = -17,  /* trace: an arena that does not own the object, or none */
    AX_ERR_EVENT_TIME = -18,   /* trace: a time before the event before it */
    AX_ERR_SYNTAX = -19,       /* reader: a line that the format does not allow */
    AX_ERR_STATE = -20,        /* a call that the object's state does not allow */
    AX_ERR_SEALED = -21,     /* code: a block that is sealed, or is not, where the other is asked */
    AX_ERR_EVENT_SIZE = -22, /* trace: a size that nothing of the kind can have */
    AX_ERR_HEADER = -23      /* code: the header of a block is not what the heap wrote there */
};

typedef struct ax_detail {
    const char *what;
    uint64_t value;
    uint64_t low;
    uint64_t high;
    uint64_t where;
} ax_detail;

/* The text of a code, never NULL. */
const char *ax_status_text(int status);

/* Fills *detail (where it is not NULL) and returns the status, so that a refusal is one line. */
int ax_fail(ax_detail *detail, int status, const char *what, uint64_t value, uint64_t low,
            uint64_t high, uint64_t where);

#endif
