"""The extension and its build switches; everything else is in pyproject.toml.

Switches, all environment variables:

``PYALLOCX_WERROR=1``     our own warnings, as errors (developers and CI)
``PYALLOCX_SANITIZE=1``   AddressSanitizer and UndefinedBehaviorSanitizer
``PYALLOCX_DEBUG=1``      ``AX_DEBUG``: every check that walks a whole state is on
"""

import os
import platform
import sysconfig
import tomllib
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# The limited API gives one wheel for every CPython from 3.11 on; free-threaded interpreters have
# no limited API, so there the wheel is of that version.
limited = not free_threaded

macros: list[tuple[str, str | None]] = []
if limited:
    macros.append(("Py_LIMITED_API", "0x030B0000"))

flags = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["pyallocx"]
# Functions begin on cache lines: else a change in one file moves the loops of the files linked
# after it, and the same code of a replay becomes up to a tenth faster or slower.
compile_args = ["-std=c11", "-O2", "-fvisibility=hidden", "-falign-functions=64"]
link_args: list[str] = []
if os.environ.get("PYALLOCX_WERROR"):
    compile_args += flags["warnings"]
if os.environ.get("PYALLOCX_DEBUG"):
    macros.append(("AX_DEBUG", "1"))
if os.environ.get("PYALLOCX_SANITIZE"):
    compile_args += [*flags["sanitizers"], "-g", "-O1"]
    link_args += flags["sanitizers"]

preload_args = list(flags["preload"])
if os.environ.get("PYALLOCX_WERROR"):
    preload_args += flags["warnings"]
# The recorder of pyallocx/preload, a shared library for other programs.
RECORDER = "pyallocx.preload.record"


class BuildExt(build_ext):
    """As ever, but the recorder is no module of Python: it has one name for every interpreter."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file of an extension, named in full or by its last part."""
        if fullname in {RECORDER, RECORDER.rpartition(".")[2]}:
            return os.path.join(*fullname.split(".")) + ".so"
        return super().get_ext_filename(fullname)


# Elsewhere the package is without it, and says so where it is asked for.
recorders = []
if platform.system() == "Linux" and platform.machine() in {"x86_64", "aarch64", "arm64"}:
    recorders.append(
        Extension(
            RECORDER,
            sources=sorted(glob("csrc/preload/record*.c")),
            depends=sorted(glob("csrc/preload/*.h")),
            extra_compile_args=preload_args,
            extra_link_args=["-Wl,-z,now"],
            libraries=["dl", "pthread"],
        )
    )

setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[
        *recorders,
        Extension(
            "pyallocx._core",
            sources=sorted(glob("csrc/core/**/*.c", recursive=True) + glob("csrc/python/*.c")),
            depends=sorted(glob("csrc/**/*.h", recursive=True)),
            define_macros=macros,
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            libraries=["m"],
            py_limited_api=limited,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if limited else {},
)
