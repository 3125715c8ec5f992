"""Builds what is compiled of kraftlite, the scanner of record batches (kraftlite/log/_scan.c) and the hashes of rows
(kraftlite/columns/_hashes.c), where a C compiler is; without one nothing is missing.

Hatchling calls this for wheels and editable installs; `python hatch_build.py` builds it into the source tree by hand.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCES = {"kraftlite/log/_scan.c": ["kraftlite/log/_scan_core.h"], "kraftlite/columns/_hashes.c": []}
"""What is compiled, each into one module beside it, and what it includes."""
LIMITED_API = "0x030b0000"
PYTHON_TAG = "cp311"


def build() -> list[Path]:
    """The built files, each in its package; none, and a line that says why, when one of them cannot be built."""
    try:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as error:
        return _without(f"setuptools is missing ({error})")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return _without("a free-threaded Python has no stable ABI")
    extensions = [
        Extension(
            source.removesuffix(".c").replace("/", "."),
            [str(ROOT / source)],
            depends=[str(ROOT / it) for it in included],
            define_macros=[("Py_LIMITED_API", LIMITED_API)],
            extra_compile_args=[] if sys.platform == "win32" else ["-g0"],  # no paths of this machine: the same bytes anywhere
            py_limited_api=True,
        )
        for source, included in SOURCES.items()
    ]
    with tempfile.TemporaryDirectory(prefix="kraftlite-build-") as scratch:
        command = build_ext(Distribution({"name": "kraftlite", "ext_modules": extensions}))
        command.build_lib, command.build_temp, command.force = scratch, scratch, True
        try:
            command.ensure_finalized()
            command.run()
        except Exception as error:  # noqa: BLE001 - every way in which a compiler is missing or fails
            return _without(f"{type(error).__name__}: {error}")
        return [_placed(Path(made), ROOT / Path(made).relative_to(scratch)) for made in command.get_outputs()]


def _placed(made: Path, target: Path) -> Path:
    """The built file beside its source."""
    partial = target.with_name(f".{made.name}.new")
    partial.write_bytes(made.read_bytes())
    partial.replace(target)  # whoever has the old one loaded keeps it
    return target


def _without(reason: str) -> list[Path]:
    """Nothing is compiled: what was must not stay, and the install goes on."""
    for source in map(ROOT.joinpath, SOURCES):
        for old in source.parent.glob(f"{source.stem}.*"):
            if old.suffix in (".so", ".pyd"):
                old.unlink()
    print(f"kraftlite: records are validated and hashed in Python, nothing was compiled: {reason}", file=sys.stderr)  # noqa: T201
    return []


def _platform() -> str:
    """The platform of a wheel with compiled files, e.g. linux_x86_64."""
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
            if not built:
                return
            build_data["artifacts"] += [it.relative_to(ROOT).as_posix() for it in built]
            build_data["pure_python"] = False
            build_data["tag"] = f"{PYTHON_TAG}-abi3-{_platform()}"


if __name__ == "__main__":
    built = build()
    print("\n".join(map(str, built)) or "not built")  # noqa: T201
    sys.exit(not built)
