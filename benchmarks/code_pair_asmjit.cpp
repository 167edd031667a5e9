// asmjit's JitAllocator behind the three functions that code_pair.c measures.
#include <asmjit/core.h>

extern "C" {
void *asmjit_open(void);
void *asmjit_take(void *allocator, size_t bytes);
void asmjit_give(void *allocator, void *code);
void asmjit_close(void *allocator);
}

void *asmjit_open(void)
{
    return new asmjit::JitAllocator();
}

void *asmjit_take(void *allocator, size_t bytes)
{
    void *executable = nullptr;
    void *writable = nullptr;
    if (static_cast<asmjit::JitAllocator *>(allocator)->alloc(&executable, &writable, bytes)) {
        return nullptr;
    }
    return executable;
}

void asmjit_give(void *allocator, void *code)
{
    static_cast<asmjit::JitAllocator *>(allocator)->release(code);
}

void asmjit_close(void *allocator)
{
    delete static_cast<asmjit::JitAllocator *>(allocator);
}
