"""The named developer commands of pyallocx: ``python dev.py help`` lists them.

Only the standard library is imported at the top, so that the list can be read anywhere; the
commands themselves want ``python -m pip install -e '.[dev]'``, a C compiler and, for ``test-c``,
valgrind.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
WORKERS = 2
MAX_LINES = 800
MUTANT_SECONDS = 120
C_TEST_SECONDS = 600

TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyallocx"]
WARNINGS: list[str] = TOOL["warnings"]
SANITIZERS: list[str] = TOOL["sanitizers"]
PRELOAD: list[str] = TOOL["preload"]
CC = shlex.split(os.environ.get("CC", "cc"))
CORE_FLAGS = ["-std=c11", "-O1", "-g"]
# Tests of what other processes do; once is enough: not under sanitizers, nor with each Python.
ONCE = (
    "dev", "notebooks", "prefill", "record_ends", "record_programs", "recorder_more",
    "recorder_raw", "recorder_raw_room", "recorder_raw_survival",
)  # fmt: skip
ASIDE: set[int] = set()  # the processes that capture() waits for

# What a copy of the tree leaves behind.
NOT_COPIED = re.compile(r"\.git|build|dist|.*\.egg-info|.*\.so|__pycache__|\..*_cache|\.hypothesis")


class Failed(Exception):
    """A command did not reach its end; the text says why."""


# --- running things -------------------------------------------------------------------------------


def echo(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the line that says what is about to run."""
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in env.items())
    return f"+ {settings}{shlex.join(command)}"


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return our environment with ``env`` on top, and the data directory named for copies."""
    merged = {**os.environ, **env}
    shared = ROOT.parent / "shared" / "data"
    if shared.is_dir():
        merged.setdefault("PYALLOCX_SHARED_DATA", str(shared))
    return merged


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
    """Run a command in the foreground; an exit code other than 0 ends ours."""
    words = [str(word) for word in command]
    print(echo(words, env or {}), flush=True)
    code = subprocess.run(words, cwd=cwd, env=environment(env or {})).returncode
    if code:
        raise Failed(f"exit code {code} from: {shlex.join(words)}")


def capture(
    *command: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> tuple[int | None, str]:
    """Run a command aside; return its exit code (None: out of time) and all its output."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    ASIDE.add(process.pid)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        end_aside({process.pid})
        output, _ = process.communicate()
        return None, output
    finally:
        ASIDE.discard(process.pid)


def end_aside(leaders: Iterable[int]) -> None:
    """End what runs aside, with all that it started."""
    for leader in list(leaders):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def at_once(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Map ``work`` over ``items``, a few at a time, in order."""
    pool = ThreadPoolExecutor(WORKERS)
    try:
        yield from pool.map(work, items)
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        end_aside(ASIDE)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def tool(name: str) -> str:
    """Return a program of our own environment, which need not be on PATH."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.exists() else name


def tracked() -> list[Path]:
    """Return the files that git knows, relative to the root."""
    code, output = capture("git", "ls-files", "-z")
    if code:
        raise Failed(f"git ls-files: {output}")
    return [Path(name) for name in output.split("\0") if name and (ROOT / name).is_file()]


def copy_tree(source: Path, target: Path, keep: str = "") -> Path:
    """Make ``target`` a copy of the source tree without what was built; ``keep`` stays there."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in target.iterdir():
        if entry.name == keep:
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()

    def ignore(folder: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if NOT_COPIED.fullmatch(name) or Path(folder, name, "pyvenv.cfg").exists()
        }

    shutil.copytree(source, target, ignore=ignore, symlinks=True, dirs_exist_ok=True)
    return target


# --- C --------------------------------------------------------------------------------------------


def compile_object(source: Path, objects: Path, flags: Sequence[str], root: Path = ROOT) -> Path:
    """Compile one C file of the tree ``root``."""
    name = source.relative_to(root)
    target = objects / ("-".join(name.with_suffix("").parts) + ".o")
    compiler(*flags, "-c", str(name), "-o", str(target), cwd=root)
    return target


def compiler(*arguments: str, cwd: Path = ROOT) -> None:
    """Run the C compiler."""
    words = [*CC, *arguments]
    code, output = capture(*words, cwd=cwd)
    print(f"{echo(words, {})}\n{output}", end="", flush=True)
    if code:
        raise Failed(f"exit code {code} from: {shlex.join(words)}")


def compile_all(
    sources: Iterable[Path], objects: Path, flags: Sequence[str], root: Path = ROOT
) -> list[Path]:
    """Compile C files of the tree ``root``, a few at a time."""
    shutil.rmtree(objects, ignore_errors=True)
    objects.mkdir(parents=True)
    return list(at_once(lambda source: compile_object(source, objects, flags, root), sources))


def core_sources(root: Path = ROOT) -> list[Path]:
    """Return the C files of the core."""
    return sorted((root / "csrc" / "core").rglob("*.c"))


def run_c_tests(into: Path, flags: Sequence[str], runners: Mapping[str, Sequence[str]]) -> None:
    """Build every C test with the whole core, and run it under each runner."""
    tests = sorted((ROOT / "csrc" / "tests").glob("test_*.c"))
    core = compile_all(core_sources(), into / "core", flags)
    objects = compile_all(tests, into / "tests", flags)
    jobs = []
    for test, test_object in zip(tests, objects, strict=True):
        program = into / test.stem
        files = [str(file) for file in (test_object, *core)]
        compiler(*flags, *files, "-o", str(program), "-pthread", "-lm")
        jobs += [(program, name) for name in runners]

    def one(job: tuple[Path, str]) -> bool:
        program, name = job
        words = [*runners[name], str(program)]
        # The sanitizers' options; other runs do not read them.
        env = {"ASAN_OPTIONS": "allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        start = time.monotonic()
        code, output = capture(*words, env=env, seconds=C_TEST_SECONDS)
        verdict = "passed" if code == 0 else "out of time" if code is None else f"failed ({code})"
        summary = f"{program.name} ({name}): {verdict}, {time.monotonic() - start:.1f} s"
        print(f"{echo(words, {})}\n{output if code else ''}{summary}", flush=True)
        return code == 0

    verdicts = list(at_once(one, jobs))
    print(f"{verdicts.count(True)} passed, {verdicts.count(False)} failed", flush=True)
    if not all(verdicts) or not verdicts:
        raise Failed("C tests")


# --- commands -------------------------------------------------------------------------------------

Command = Callable[[list[str]], None]
COMMANDS: dict[str, Command] = {}


def command(function: Command) -> Command:
    """Make a function a command, named after it and described by the first line of its text."""
    COMMANDS[function.__name__.strip("_").replace("_", "-")] = function
    return function


@command
def help_(arguments: list[str]) -> None:
    """List the commands."""
    for name, function in COMMANDS.items():
        print(f"  {name:<10} {(function.__doc__ or '').splitlines()[0]}")


@command
def build(arguments: list[str]) -> None:
    """Build and install in place, with the developers' tools; our warnings are errors."""
    run(sys.executable, "-m", "pip", "install", "-e", ".[dev]", env={"PYALLOCX_WERROR": "1"})


@command
def test(arguments: list[str]) -> None:
    """Run the tests; arguments go to pytest."""
    run(sys.executable, "-m", "pytest", *arguments)


@command
def test_c(arguments: list[str]) -> None:
    """Build the C tests of the core, run them plain and under valgrind."""
    if not shutil.which("valgrind"):
        raise Failed("valgrind is not installed")
    valgrind = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=all"]
    valgrind += ["--errors-for-leak-kinds=all", "--error-exitcode=9"]
    run_c_tests(BUILD / "c", [*CORE_FLAGS, *WARNINGS], {"plain": [], "valgrind": valgrind})


@command
def sanitize(arguments: list[str]) -> None:
    """Run the tests and the C tests under the sanitizers, in a copy; arguments go to pytest."""
    run_c_tests(
        BUILD / "c-sanitize",
        [*CORE_FLAGS, *WARNINGS, *SANITIZERS, "-DAX_DEBUG=1"],
        {"sanitizers": []},
    )
    tree = copy_tree(ROOT, BUILD / "sanitize", keep="build")
    build_env = {"PYALLOCX_SANITIZE": "1", "PYALLOCX_DEBUG": "1", "PYALLOCX_WERROR": "1"}
    run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=tree, env=build_env)

    # The extensions in C++ that others load need the C++ runtime under the sanitizer's.
    wanted = ["libasan.so", "libubsan.so", "libstdc++.so"]
    libraries = [shared_library(name) for name in wanted]
    reports = tree / "build" / "report"
    for old in reports.parent.glob(reports.name + ".*"):
        old.unlink()
    env = {
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={reports}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(tree),
        "HYPOTHESIS_PROFILE": os.environ.get("HYPOTHESIS_PROFILE", "quick"),
    }
    # pytest's fault handler would hide AddressSanitizer's report of a crash, and its capture of the
    # file descriptors the other sanitizer's, which knows no log. What other processes do, those of
    # the developer commands, recorded programs and notebooks, is not sanitized, or not for long.
    options = ["-p", "no:faulthandler", "-p", "no:cacheprovider", "--capture=sys"]
    options += [f"--ignore=tests/test_{name}.py" for name in ONCE]
    try:
        check_import(Path(sys.executable), tree, tree, env)
        run(
            sys.executable, "-m", "pytest", *options, *(arguments or ["-m", "not slow"]),
            cwd=tree, env=env,
        )  # fmt: skip
    finally:
        found = sorted(reports.parent.glob(reports.name + ".*"))
        for report in found:
            print(report.read_text(errors="replace"), flush=True)
    if found:
        raise Failed(f"{len(found)} reports of the sanitizers")
    fuzz(["5"])


@command
def fuzz(arguments: list[str]) -> None:
    """Fuzz the readers for so many seconds (60), guided by coverage where there is a clang."""
    sys.modules.setdefault("dev", sys.modules[__name__])
    importlib.import_module("dev_fuzz").fuzz(arguments)


def shared_library(name: str) -> str:
    """Return where the compiler has a shared library."""
    code, output = capture(*CC, f"-print-file-name={name}")
    path = Path(output.strip())
    if code or not path.is_absolute():
        raise Failed(f"the compiler has no {name}")
    return str(path.resolve())


def check_import(python: Path, tree: Path, cwd: Path, env: Mapping[str, str]) -> None:
    """Make sure that the package comes from ``tree``, nowhere else."""
    code = "import pyallocx._core; print(pyallocx._core.__file__)"
    status, output = capture(python, "-c", code, cwd=cwd, env=env)
    where = output.strip().splitlines()[-1] if output.strip() else ""
    print(f"testing {where}", flush=True)
    if status or not Path(where).resolve().is_relative_to(tree.resolve()):
        raise Failed(f"wanted the package in {tree}, got: {output}")


@command
def format_(arguments: list[str]) -> None:
    """Format the Python and C files."""
    run(sys.executable, "-m", "ruff", "format")
    run(tool("clang-format"), "-i", *c_files())


def c_files() -> list[str]:
    """Return the C files and headers."""
    return [str(f) for f in tracked() if f.parts[0] == "csrc" and f.suffix in {".c", ".h"}]


@command
def lint(arguments: list[str]) -> None:
    """Run every check that does not run the code: style, types, the rules of the house."""
    python = sys.executable
    checks: dict[str, Callable[[], None]] = {
        "ruff check": lambda: run(python, "-m", "ruff", "check"),
        "ruff format": lambda: run(python, "-m", "ruff", "format", "--check"),
        "mypy": lambda: run(python, "-m", "mypy"),
        "stubtest": lambda: run(python, "-m", "mypy.stubtest", "pyallocx._core"),
        "clang-format": lambda: run(tool("clang-format"), "--dry-run", "-Werror", *c_files()),
        "core": check_core,
        "files": check_files,
        "links": check_links,
    }
    failures = []
    for name, check in checks.items():
        try:
            check()
        except Failed as failure:
            print(f"{name}: {failure}", flush=True)
            failures.append(name)
    if failures:
        raise Failed(", ".join(failures))
    print(f"{len(checks)} checks found nothing")


def no_findings(findings: Sequence[str]) -> None:
    """Fail with the list of findings, if there are any."""
    if findings:
        raise Failed("\n  ".join([f"{len(findings)} findings", *findings]))


def check_core(root: Path = ROOT, objects: Path = BUILD / "lint") -> None:
    """Make sure that the core knows no Python, has no globals, never prints, never exits."""
    findings = []
    for file in sorted((root / "csrc" / "core").rglob("*.[ch]")):
        if re.search(r'#\s*include\s*[<"]Python\.h', file.read_text()):
            findings.append(f"{file.relative_to(root)} includes Python.h")
    # Not position-independent, so that a constant table of pointers is read-only data here too.
    flags = [*CORE_FLAGS, "-fno-pie", "-U_FORTIFY_SOURCE"]
    forbidden = re.compile(
        r"v?f?printf|f?putc|putchar|f?puts|fwrite|perror|stdout|stderr"
        r"|_?_?exit|_Exit|quick_exit|abort|__assert_fail|raise"
    )
    for file in compile_all(core_sources(root), objects, flags, root):
        code, output = capture("nm", "--format=posix", file)
        if code:
            raise Failed(output)
        for line in output.splitlines():
            symbol, kind = line.split()[:2]
            if kind in "dDbBcCsSgG":
                findings.append(f"{file.stem}: '{symbol}' is a mutable global")
            if kind == "U" and forbidden.fullmatch(symbol):
                findings.append(f"{file.stem}: calls '{symbol}'")
    no_findings(findings)


# Absolute paths of a machine, hosts that serve packages, and settings that name such hosts.
MACHINE = re.compile(
    rb"(?<![\w.])/(?:work|root|home)/"
    rb"|\b(?:files|index|registry|proxy|mirrors?|deb|pypi)\.(?:[\w-]+\.)*(?:org|net|com|io|internal)\b"
    rb"|index[-]url|trusted[-]host|find[-]links"
)


def contents(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the content of a file, and of its members where it is an archive."""
    data = (ROOT / file).read_bytes()
    yield str(file), data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield f"{file}:{member}", archive.read(member)


def check_files() -> None:
    """Make sure that no file is too long or names a machine."""
    findings = []
    for file in tracked():
        for name, data in contents(file):
            if found := MACHINE.search(data):
                line = data.count(b"\n", 0, found.start()) + 1
                text = found.group().decode(errors="replace")
                findings.append(f"{name}:{line} names a machine: '{text}'")
        if file.suffix in {".py", ".pyi", ".c", ".h"} or file.parts[0] == ".ci":
            lines = (ROOT / file).read_text().count("\n")
            if lines > MAX_LINES:
                findings.append(f"{file} has {lines} lines, more than {MAX_LINES}")
    no_findings(findings)


def check_links() -> None:
    """Make sure that links and pictures in the documents lead to files of the repository."""
    files = tracked()
    known = {ROOT / file for file in files} | {(ROOT / file).parent for file in files}
    findings = []
    for file in files:
        if file.suffix != ".md":
            continue
        text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / file).read_text())
        links = re.findall(r"\]\(\s*<?([^)\s>]+)", text)
        links += re.findall(r"(?i)<(?:img|a)\b[^>]*?\b(?:src|href)=[\"']([^\"']+)", text)
        for link in links:
            path = link.partition("#")[0]
            if not path or re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            if Path(os.path.normpath(ROOT / file.parent / path)) not in known:
                findings.append(f"{file}: nothing at '{link}'")
    no_findings(findings)


@command
def wheel(arguments: list[str]) -> None:
    """Build the wheel, and test it outside the tree with every CPython found."""
    work = BUILD / "wheel"
    shutil.rmtree(work, ignore_errors=True)
    tree = copy_tree(ROOT, work / "tree")
    # By way of the source distribution, which shows that it is complete.
    run(sys.executable, "-m", "build", "--outdir", work / "dist", tree)
    names = [path.name for path in (work / "dist").glob("*.whl")]
    if len(names) != 1 or not re.fullmatch(r"pyallocx-[^-]+-cp311-abi3-[^-]+\.whl", names[0]):
        raise Failed(f"wanted one wheel for cp311-abi3, got {names}")
    built = work / "dist" / names[0]
    if importlib.util.find_spec("abi3audit"):
        run(sys.executable, "-m", "abi3audit", "--strict", "--verbose", built)
    else:
        print("no abi3audit: judged by the wheel's name only")

    tested = []
    for version, python in interpreters().items():
        with tempfile.TemporaryDirectory(prefix="pyallocx-wheel-") as folder:
            if test_wheel(built, python, Path(folder)):
                tested.append(version)
    if not tested:
        raise Failed("no interpreter could test the wheel")
    print(f"{names[0]} tested with CPython {', '.join(tested)}")


def interpreters() -> dict[str, Path]:
    """Return one CPython per version >= 3.11: this one, those on PATH, those of pyenv."""
    candidates = [Path(sys.executable)]
    for folder in map(Path, os.get_exec_path()):
        candidates += sorted(folder.glob("python3.[0-9][0-9]"))
    if shutil.which("pyenv"):
        _, output = capture("pyenv", "root")
        candidates += sorted(Path(output.strip(), "versions").glob("3.*/bin/python"))
    code = (
        "import sys, sysconfig; assert sys.implementation.name == 'cpython'; import venv;"
        "assert sys.version_info >= (3, 11) and not sysconfig.get_config_var('Py_GIL_DISABLED');"
        "print('%d.%d' % sys.version_info[:2])"
    )
    found: dict[str, Path] = {}
    for python in candidates:
        status, output = capture(python, "-c", code, seconds=60)
        if status == 0:
            found.setdefault(output.strip(), python)
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def test_wheel(built: Path, python: Path, folder: Path) -> bool:
    """Install the wheel in a new environment and run the quick tests there."""
    run(python, "-m", "venv", "--without-pip", folder / "venv")
    new = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(new)]
    code, output = capture(*pip, "install", "-qq", "--only-binary", "numpy", "numpy")
    if code:
        print(f"skipped {python}: numpy has no wheel for it\n{output}", flush=True)
        return False
    run(*pip, "install", "-qq", f"{built}[test]")
    ignore = shutil.ignore_patterns("__pycache__", "mutants", "test_dev.py")
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    env = {"HYPOTHESIS_PROFILE": os.environ.get("HYPOTHESIS_PROFILE", "quick"), "PYTHONPATH": ""}
    check_import(new, folder / "venv", folder, env)
    run(
        new.with_name("pyallocx"), "sweep", "arena", "--retain-bytes", "0,2048", cwd=folder, env=env
    )
    once = [f"--ignore=tests/test_{name}.py" for name in ONCE]
    quiet = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
    run(new, "-m", "pytest", *quiet, *once, cwd=folder, env=env)
    return True


@command
def mutate(arguments: list[str]) -> None:
    """Break the code on purpose and demand that the tests notice; arguments name mutants."""
    mutants = load_mutants(ROOT / "tests" / "mutants" / "mutants.toml")
    unknown = set(arguments) - {mutant.name for mutant in mutants}
    if unknown:
        raise Failed(f"no mutant named {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in mutants if not arguments or mutant.name in arguments]
    outcomes = run_mutants(ROOT, chosen, BUILD / "mutants")
    survivors = [outcome.mutant.name for outcome in outcomes if not outcome.caught]
    print(f"{len(outcomes) - len(survivors)} mutants caught, {len(survivors)} not caught")
    if survivors:
        raise Failed(", ".join(survivors))


@dataclass(frozen=True)
class Mutant:
    """A deliberate mistake, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: list[str]

    def mutated(self, tree: Path) -> str:
        """Return the text of the file with the mistake in it."""
        text = (tree / self.file).read_text()
        count = text.count(self.old)
        if count != 1:
            raise Failed(
                f"mutant {self.name}: its old text is {count} times in {self.file}, not once"
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    verdict: str
    seconds: float
    output: str

    @property
    def caught(self) -> bool:
        """Whether the tests failed, as they must."""
        return self.verdict.startswith("caught")


def load_mutants(path: Path) -> list[Mutant]:
    """Read the table of mutants."""
    rows = tomllib.loads(path.read_text()).get("mutant", [])
    try:
        mutants = [Mutant(**row) for row in rows]
    except TypeError as error:
        raise Failed(f"{path.name}: {error}") from None
    names = [mutant.name for mutant in mutants]
    for mutant in mutants:
        if names.count(mutant.name) > 1 or not re.fullmatch(r"[a-z0-9-]+", mutant.name):
            raise Failed(f"{path.name}: name '{mutant.name}' is not one name of [a-z0-9-]")
        if not mutant.tests or mutant.old == mutant.new:
            raise Failed(f"{path.name}: {mutant.name} names no test or changes nothing")
    return mutants


def build_extension(tree: Path, only: str = "") -> None:
    """Build the extension of a copy in place; ``only`` that file has changed since."""
    recorder = [str(path) for path in sorted((tree / "csrc" / "preload").glob("record*.c"))]
    if recorder and (not only or only.startswith("csrc/preload/")):
        target = "pyallocx/preload/record.so"
        compiler(*PRELOAD, "-shared", *recorder, "-o", target, "-ldl", "-pthread", cwd=tree)
    if only.startswith("csrc/preload/"):
        return
    sources = [*core_sources(tree), *sorted((tree / "csrc" / "python").glob("*.c"))]
    objects = tree / "build" / "objects"
    flags = ["-std=c11", "-O1", "-fPIC", "-fvisibility=hidden"]
    flags += [f"-I{sysconfig.get_path('include')}"]
    suffix = ".abi3.so"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
    else:
        flags += ["-DPy_LIMITED_API=0x030B0000"]
    if only.endswith(".c"):
        compile_object(tree / only, objects, flags, tree)
    else:
        compile_all(sources, objects, flags, tree)
    files = [str(file.relative_to(tree)) for file in sorted(objects.glob("*.o"))]
    compiler("-shared", *files, "-o", f"pyallocx/_core{suffix}", cwd=tree)


def pytest_in(tree: Path, nodes: Sequence[str], seconds: float | None) -> tuple[int | None, str]:
    """Run tests of a copy against the package of that copy."""
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    env = {"PYTHONPATH": str(tree), "HYPOTHESIS_PROFILE": "mutate"}
    command = [sys.executable, "-m", "pytest", *options, *nodes]
    code, output = capture(*command, cwd=tree, env=env, seconds=seconds)
    print(echo(command, env), flush=True)
    return code, output


def run_mutants(root: Path, mutants: Sequence[Mutant], work: Path) -> list[Outcome]:
    """Prove that the tests pass without the mistakes, then run each mutant in its own copy."""
    if not mutants:
        raise Failed("there are no mutants")
    for mutant in mutants:
        mutant.mutated(root)
    baseline = copy_tree(root, work / "baseline")
    build_extension(baseline)
    nodes = sorted({node for mutant in mutants for node in mutant.tests})
    halves = [part for part in (nodes[0::2], nodes[1::2]) if part]
    for code, output in at_once(lambda part: pytest_in(baseline, part, None), halves):
        if code:
            raise Failed(f"the tests do not pass without a mutant:\n{output}")
    outcomes = list(at_once(lambda mutant: run_mutant(baseline, mutant, work), mutants))
    for outcome in outcomes:
        if not outcome.caught:
            print(f"--- {outcome.mutant.name}: {outcome.mutant.why}\n{outcome.output}")
    width = max(len(mutant.name) for mutant in mutants)
    print(f"{'mutant':<{width}}  seconds  outcome")
    for outcome in outcomes:
        print(f"{outcome.mutant.name:<{width}}  {outcome.seconds:7.1f}  {outcome.verdict}")
    return outcomes


def run_mutant(baseline: Path, mutant: Mutant, work: Path) -> Outcome:
    """Run the tests of one mutant: they must fail by an assertion, a crash or a hang."""
    start = time.monotonic()
    tree = work / mutant.name
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(baseline, tree, symlinks=True)
    (tree / mutant.file).write_text(mutant.mutated(tree))
    try:
        if mutant.file.startswith("csrc/"):
            build_extension(tree, only=mutant.file)
        code, output = pytest_in(tree, mutant.tests, MUTANT_SECONDS)
    except Failed as failure:
        return Outcome(mutant, "error: does not build", time.monotonic() - start, str(failure))
    if code is None:
        verdict = f"caught, but by a hang of {MUTANT_SECONDS} s"
    elif code < 0:
        verdict = f"caught, but by a crash: {signal.Signals(-code).name}"
    else:
        texts = {0: "survived", 1: "caught"}
        verdict = texts.get(code, f"error: exit code {code} of pytest")
    return Outcome(mutant, verdict, time.monotonic() - start, output)


@command
def bench(arguments: list[str]) -> None:
    """Run the benchmarks; arguments go to them."""
    script = ROOT / "benchmarks" / "run.py"
    if not script.exists():
        raise Failed("there are no benchmarks")
    run(sys.executable, script, *arguments)


@command
def notebooks(arguments: list[str]) -> None:
    """Run the notebooks' sources, write the paired .ipynb with outputs; arguments name some."""
    folder = ROOT / "notebooks"
    sources = sorted(folder.glob("*.py"))
    if arguments:
        sources = [Path(name).resolve().with_suffix(".py") for name in arguments]
    for source in sources:
        print(f"+ run {source.name}, write {source.with_suffix('.ipynb').name}", flush=True)
        execute_notebook(source)


def execute_notebook(source: Path) -> None:
    """Run one notebook; the result depends on nothing but its source and the package."""
    jupytext = importlib.import_module("jupytext")
    nbclient = importlib.import_module("nbclient")
    nbformat = importlib.import_module("nbformat")

    notebook = jupytext.read(source)
    nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=600,
        record_timing=False,
        resources={"metadata": {"path": str(source.parent)}},
    ).execute(env={**os.environ, "COLUMNS": "100"})  # texts do not depend on the terminal
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    # Whose kernel ran it is no part of the answer.
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, source.with_suffix(".ipynb"))


@command
def clean(arguments: list[str]) -> None:
    """Remove what was built, and the caches."""
    patterns = ["build", "dist", "*.egg-info", ".hypothesis", ".*_cache", "pyallocx/**/*.so"]
    patterns += ["*/.ipynb_checkpoints", "pyallocx/**/__pycache__", "tests/**/__pycache__"]
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
        print(f"+ remove {path.relative_to(ROOT)}", flush=True)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name."""
    name, *rest = arguments or ["help"]
    if name in {"-h", "--help"}:
        name = "help"
    if name not in COMMANDS:
        print(f"no command '{name}'; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        COMMANDS[name](rest)
    except (Failed, FileNotFoundError) as failure:
        sys.stdout.flush()
        print(f"dev.py {name} failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
