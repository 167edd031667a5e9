"""The fuzzer of the developer commands: any bytes through every reader in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import dev

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
FLAGS = ["-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-DAX_DEBUG=1"]
CLANGS = ["clang", *(f"clang-{version}" for version in range(22, 13, -1))]
WORK = dev.BUILD / "fuzz"
SOURCES = sorted((dev.ROOT / "csrc" / "fuzz").glob("*.c"))


def clang() -> str | None:
    """Return a clang that has libFuzzer and the sanitizers, or None."""
    WORK.mkdir(parents=True, exist_ok=True)
    probe = WORK / "probe.c"
    probe.write_text(
        "#include <stddef.h>\n#include <stdint.h>\n"
        "int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) { return p && n > 99 ? 0 : 0; }\n"
    )
    for name in filter(shutil.which, CLANGS):
        words = [name, "-fsanitize=fuzzer,address,undefined", str(probe), "-o", str(WORK / "probe")]
        if subprocess.run(words, capture_output=True).returncode == 0:
            return name
    return None


def build(compiler: str | None) -> tuple[Path, Path]:
    """Build the program that mutates by itself, and with clang the coverage-guided one as well."""
    alone = dev.compile_all(
        [*dev.core_sources(), *SOURCES], WORK / "alone", [*FLAGS, *SANITIZERS, "-DAX_FUZZ_ALONE"]
    )
    dev.compiler(*SANITIZERS, *map(str, alone), "-o", str(WORK / "fuzz_alone"), "-lm")
    if compiler is None:
        return WORK / "fuzz_alone", WORK / "fuzz_alone"
    sources = [str(path) for path in [*dev.core_sources(), *SOURCES]]
    guided = WORK / "fuzz_guided"
    flags = [*FLAGS, "-fsanitize=fuzzer,address,undefined", SANITIZERS[1], "-w"]
    dev.run(compiler, *flags, *sources, "-o", guided, "-lm")
    return WORK / "fuzz_alone", guided


def fuzz(arguments: list[str]) -> None:
    """Fuzz for so many seconds; what was found so far is where the next run begins."""
    if len(arguments) > 1 or not all(word.isdecimal() for word in arguments):
        raise dev.Failed("fuzz takes a number of seconds")
    seconds = arguments[0] if arguments else "60"
    compiler = clang()
    alone, guided = build(compiler)
    if compiler is None:
        print("no clang with libFuzzer: mutations of the samples, not guided by coverage")
        dev.run(alone, seconds)
        return
    corpus, seeds = WORK / "corpus", WORK / "seeds"
    for folder in (corpus, seeds):
        folder.mkdir(exist_ok=True)
    dev.run(alone, "seeds", seeds)
    findings = f"-artifact_prefix={WORK}/"
    limits = [f"-max_total_time={seconds}", "-max_len=2048", "-rss_limit_mb=2048", "-timeout=20"]
    dev.run(guided, *limits, "-verbosity=0", "-print_final_stats=1", findings, corpus, seeds)
