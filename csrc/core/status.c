#include "status.h"

const char *ax_status_text(int status)
{
    switch (status) {
    case AX_OK:
        return "all is well";
    case AX_ERR_NOMEM:
        return "out of memory";
    case AX_ERR_RANGE:
        return "value out of range";
    case AX_ERR_OVERFLOW:
        return "size or count too large for its type";
    case AX_ERR_FOREIGN:
        return "address was not handed out by this allocator";
    case AX_ERR_STALE:
        return "stale handle: its object was freed and the memory handed out again";
    case AX_ERR_DOUBLE_FREE:
        return "object is already free";
    case AX_ERR_WRONG_KEY:
        return "object belongs to another key";
    case AX_ERR_WRONG_SIZE:
        return "key was first used with another size";
    case AX_ERR_POISON:
        return "free object was written to";
    case AX_ERR_CORRUPT:
        return "internal state is inconsistent";
    case AX_ERR_CLOSED:
        return "allocator is closed";
    case AX_ERR_EXPORTED:
        return "memory is still shown by a view";
    case AX_ERR_EVENT_OP:
        return "unknown operation";
    case AX_ERR_EVENT_ORDER:
        return "objects must be numbered in the order of their allocation";
    case AX_ERR_EVENT_OBJECT:
        return "object was never allocated";
    case AX_ERR_EVENT_DEAD:
        return "object is already dead";
    case AX_ERR_EVENT_ARENA:
        return "arena does not own the object";
    case AX_ERR_EVENT_TIME:
        return "time runs backwards";
    case AX_ERR_EVENT_SIZE:
        return "size out of range";
    case AX_ERR_SYNTAX:
        return "line is not of the format";
    case AX_ERR_STATE:
        return "call is not allowed in this state";
    case AX_ERR_SEALED:
        return "code block is sealed, or not yet sealed";
    case AX_ERR_HEADER:
        return "header of a code block was written over";
    default:
        return "unknown status";
    }
}

int ax_fail(ax_detail *detail, int status, const char *what, uint64_t value, uint64_t low,
            uint64_t high, uint64_t where)
{
    if (detail) {
        *detail = (ax_detail){what, value, low, high, where};
    }
    return status;
}
