"""Compiled kernels in a folder: ``.cubin``, ``.ptx`` and a ``.json`` manifest for each.

The manifest is written last and holds digests of the other two, so a reader
sees a whole kernel, or none, or finds out.  Every file is written beside its
place and moved there, so a reader never sees half a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiebreak.errors import InputError, KernelFileError

from .kernel_binary import KernelBinary, read_entry

MANIFEST_VERSION = 1
"""Version of the manifest's fields."""

_REMEDY = "delete it, or build the folder again with tiebreak build"
_TYPES = {
    "name": str, "architecture": str, "entry": str, "registers": int, "static_shared_bytes": int,
    "dynamic_shared_bytes": int, "spilled_bytes": int,
}  # fmt: skip


def write_kernel(folder: Path, binary: KernelBinary, fingerprint: str) -> None:
    """Write a kernel to a folder, in place of an earlier one of that name and architecture.

    Args:
        folder: Created if it is not there.
        binary: The kernel.
        fingerprint: Of what it was made from, see ``kernel_store``.

    Raises:
        InputError: The name or the architecture cannot be part of a file's name.
        KernelFileError: The folder cannot be written to.
    """
    manifest = _locate_manifest(folder, binary.name, binary.architecture)
    fields = {name: value for name, value in asdict(binary).items() if name in _TYPES}
    fields |= {"version": MANIFEST_VERSION, "fingerprint": fingerprint}
    ptx = binary.ptx.encode()
    fields |= {"cubin_sha256": _digest(binary.cubin), "ptx_sha256": _digest(ptx)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(_locate_part(manifest, "cubin"), binary.cubin)
        _replace(_locate_part(manifest, "ptx"), ptx)
        _replace(manifest, (json.dumps(fields, indent=2) + "\n").encode())
    except OSError as error:
        raise KernelFileError(
            f"kernel file {error.filename or manifest} cannot be written",
            limit=str(error.strerror),
            remedy="name a folder that can be written to",
        ) from error


def read_kernel(folder: Path, name: str, architecture: str, fingerprint: str) -> KernelBinary | None:
    """Return a kernel from a folder, or None if the folder has none of that name and architecture.

    Raises:
        InputError: The name or the architecture cannot be part of a file's name.
        KernelFileError: A file is damaged, or belongs to another kernel or other sources.
    """
    manifest = _locate_manifest(folder, name, architecture)
    try:
        text = manifest.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _damaged(manifest, str(error.strerror)) from error
    fields = _parse_manifest(manifest, text)
    expected = {"name": name, "architecture": architecture, "fingerprint": fingerprint}
    for key, value in expected.items():
        if fields[key] != value:
            raise KernelFileError(f"{key} in {manifest}", value=fields[key], limit=f"must be {value!r}", remedy=_REMEDY)
    cubin = _read_part(manifest, "cubin", fields["cubin_sha256"])
    ptx = _read_part(manifest, "ptx", fields["ptx_sha256"]).decode()
    if read_entry(ptx)[0] != fields["entry"]:
        raise _damaged(manifest, "its entry is not the kernel in the PTX")
    return KernelBinary(cubin=cubin, ptx=ptx, **{key: fields[key] for key in _TYPES})


def _locate_manifest(folder: Path, name: str, architecture: str) -> Path:
    """Return where the manifest of a kernel is."""
    for what, value in (("name of a kernel", name), ("architecture", architecture)):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+=,-]*", value):
            raise InputError(what, value=value, limit="must be letters, digits and _.+=,- only")
    return folder / f"{name}.{architecture}.json"


def _locate_part(manifest: Path, kind: str) -> Path:
    """Return where the cubin or the PTX beside a manifest is."""
    return manifest.with_name(f"{manifest.name.removesuffix('.json')}.{kind}")


def _parse_manifest(manifest: Path, text: bytes) -> dict[str, Any]:
    """Return the fields of a manifest, checked for presence and type."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise _damaged(manifest, f"no JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("version") != MANIFEST_VERSION:
        raise _damaged(manifest, f"it is no manifest of version {MANIFEST_VERSION}")
    types = {**_TYPES, "fingerprint": str, "cubin_sha256": str, "ptx_sha256": str}
    wrong = [name for name, kind in types.items() if type(fields.get(name)) is not kind]
    if wrong:
        raise _damaged(manifest, f"missing or of a wrong type: {', '.join(wrong)}")
    return fields


def _read_part(manifest: Path, kind: str, digest: str) -> bytes:
    """Return the content of the cubin or the PTX beside a manifest."""
    path = _locate_part(manifest, kind)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    if _digest(content) != digest:
        raise _damaged(path, f"its content is not what {manifest.name} says")
    return content


def _replace(path: Path, content: bytes) -> None:
    """Put a file in place in one step."""
    draft = path.with_name(f".{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, reason: str) -> KernelFileError:
    """Return the exception for a file that cannot be used."""
    return KernelFileError(f"kernel file {path} is damaged", limit=reason, remedy=_REMEDY)
