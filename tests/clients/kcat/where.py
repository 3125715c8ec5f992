"""Where kcat is: installed, or unpacked below var/clients/kcat as the README there says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from tests.clients.programs import BUILT

_UNPACKED = BUILT / "kcat" / "root"
_LIBRARIES = _UNPACKED / "usr" / "lib" / f"{os.uname().machine}-linux-gnu"


def _find() -> tuple[str | None, dict[str, str]]:
    if (found := shutil.which("kcat")) is not None:
        return found, {}
    unpacked = _UNPACKED / "usr" / "bin" / "kcat"
    return (str(unpacked), {"LD_LIBRARY_PATH": str(_LIBRARIES)}) if unpacked.exists() else (None, {})


KCAT, ENVIRONMENT = _find()


def version() -> str:
    """Of kcat, and of the librdkafka that it is made of."""
    if KCAT is None:
        return ""
    done = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=True, env={**os.environ, **ENVIRONMENT})
    found = re.search(r"Version (\S+).*librdkafka (\S+)", done.stdout)
    return f"{found[1]} (librdkafka {found[2]})" if found is not None else ""
