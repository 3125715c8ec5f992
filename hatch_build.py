"""Builds the compiled scanner of record batches (kraftlite/log/_scan.c) where a C compiler is; without one nothing is missing.

Hatchling calls this for wheels and editable installs; `python hatch_build.py` builds it into the source tree by hand.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "kraftlite" / "log"
LIMITED_API = "0x030b0000"
PYTHON_TAG = "cp311"


def build() -> Path | None:
    """The built file, in its package; None, and a line that says why, when it cannot be built."""
    try:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as error:
        return _without(f"setuptools is missing ({error})")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return _without("a free-threaded Python has no stable ABI")
    extension = Extension(
        "kraftlite.log._scan",
        [str(PACKAGE / "_scan.c")],
        depends=[str(PACKAGE / "_scan_core.h")],
        define_macros=[("Py_LIMITED_API", LIMITED_API)],
        extra_compile_args=[] if sys.platform == "win32" else ["-g0"],  # no paths of this machine: the same bytes anywhere
        py_limited_api=True,
    )
    with tempfile.TemporaryDirectory(prefix="kraftlite-build-") as scratch:
        command = build_ext(Distribution({"name": "kraftlite", "ext_modules": [extension]}))
        command.build_lib, command.build_temp, command.force = scratch, scratch, True
        try:
            command.ensure_finalized()
            command.run()
        except Exception as error:  # noqa: BLE001 - every way in which a compiler is missing or fails
            return _without(f"{type(error).__name__}: {error}")
        (made,) = (Path(path) for path in command.get_outputs())
        target = PACKAGE / made.name
        partial = target.with_name(f".{made.name}.new")
        partial.write_bytes(made.read_bytes())
        partial.replace(target)  # whoever has the old one loaded keeps it
    return target


def _without(reason: str) -> None:
    """No scanner: an old one must not stay, and the install goes on."""
    for old in PACKAGE.glob("_scan.*"):
        if old.suffix in (".so", ".pyd"):
            old.unlink()
    print(f"kraftlite: records are validated in Python, the compiled scanner was not built: {reason}", file=sys.stderr)  # noqa: T201


def _platform() -> str:
    """The platform of a wheel with a compiled file, e.g. linux_x86_64."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand
    pass
else:

    class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg,misc]
        """See the module."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name != "wheel":
                return
            built = build()
            if built is None:
                return
            build_data["artifacts"].append(built.relative_to(ROOT).as_posix())
            build_data["pure_python"] = False
            build_data["tag"] = f"{PYTHON_TAG}-abi3-{_platform()}"


if __name__ == "__main__":
    made = build()
    print(made or "not built")  # noqa: T201
    sys.exit(made is None)
