"""Real conditions under which a tally cannot be written, for scripts in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


@cache
def _namespace() -> tuple[str, ...]:
    """The command that begins a namespace of mounts; nothing where the system allows none."""
    for command in (("unshare", "-m"), ("unshare", "-Urm")):
        if shutil.which("unshare"):
            probe = subprocess.run(
                [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
            )
            if probe.returncode == 0:
                return command
    return ()


def _in_namespace(mounts: str, arguments: list[str]) -> list[str]:
    if not _namespace():
        pytest.skip("this system allows no namespace of mounts")
    return [*_namespace(), "sh", "-c", f'set -e; {mounts}; exec "$@"', "sh", *arguments]


def _full(folder: Path) -> str:
    """Put a small disk over the folder with what is in it, and fill the rest."""
    copy = folder.with_name(folder.name + "-copy")
    return (
        f"cp -a {folder} {copy}; mount -t tmpfs -o size=4m,mode=700 tmpfs {folder}; "
        f"cp -a {copy}/. {folder}; "
        f"dd if=/dev/zero of={folder}/filling bs=4k 2> /dev/null || true"
    )


def run_unwritable(condition: str, script: str, folder: Path) -> str:
    """Run a script, which is given the folder, where the folder cannot be written; return what it
    prints. The folder is as before afterwards.
    """
    arguments = [sys.executable, "-c", script, str(folder)]
    if condition == "read-only mount":
        bind = f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}"
        return _output(_in_namespace(bind, arguments))
    if condition == "full disk":
        return _output(_in_namespace(_full(folder), arguments))
    if condition == "file size limit":
        limit = (
            "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); import os, sys; "
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        return _output([sys.executable, "-c", limit, *arguments])
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may write everything, and there is no setpriv to take that away")
        arguments = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *arguments]
    paths = [folder, *folder.rglob("*")]
    modes = [path.stat().st_mode for path in paths]
    try:
        for path in paths:
            path.chmod(0o500 if path.is_dir() else 0o400)
        return _output(arguments)
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


def run_full(script: str, folder: Path) -> str:
    """Run a script on a disk of 4 MB that it fills itself, at `folder`; what it leaves there is in
    the folder afterwards.
    """
    after = folder.with_name(folder.name + "-after")
    arguments = [sys.executable, "-c", script, str(folder)]
    command = _in_namespace(f"mount -t tmpfs -o size=4m,mode=700 tmpfs {folder}", ["sh", "-c"])
    quoted = f'"$@" && rm -f {folder}/filling && cp -a {folder} {after}'
    output = _output([*command, quoted, "sh", *arguments])
    folder.rmdir()
    after.rename(folder)
    return output


def _output(command: list[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout
