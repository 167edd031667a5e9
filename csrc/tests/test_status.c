/* status: every code has a text of its own, and a refusal carries its numbers. */
#include "../core/status.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int ok, const char *what, int status)
{
    if (!ok) {
        fprintf(stderr, "%s (status %d)\n", what, status);
        failures++;
    }
}

int main(void)
{
    const char *unknown = ax_status_text(1);
    for (int status = AX_ERR_HEADER; status <= AX_OK; status++) {
        const char *text = ax_status_text(status);
        expect(text && *text, "no text", status);
        expect(strcmp(text, unknown) != 0, "unknown", status);
        for (int other = AX_ERR_HEADER; other < status; other++) {
            expect(strcmp(text, ax_status_text(other)) != 0, "the text of another code", status);
        }
    }
    expect(strcmp(ax_status_text(AX_ERR_HEADER - 1), unknown) == 0, "a code too many",
           AX_ERR_HEADER);

    ax_detail detail = {0};
    int status = ax_fail(&detail, AX_ERR_RANGE, "chunk_bytes", 3, 1, 2, 4);
    expect(status == AX_ERR_RANGE, "another status", status);
    expect(strcmp(detail.what, "chunk_bytes") == 0 && detail.value == 3 && detail.low == 1 &&
               detail.high == 2 && detail.where == 4,
           "another detail", status);
    expect(ax_fail(NULL, AX_ERR_NOMEM, NULL, 0, 0, 0, 0) == AX_ERR_NOMEM, "no detail",
           AX_ERR_NOMEM);
    return failures != 0;
}
