"""A ``.tar``, ``.tar.gz`` or ``.zip`` of a dump folder → the folder, unpacked within limits.

An archive is untrusted. Only plain files whose names look like dumps are taken,
each to a place inside a temporary folder: no links, no devices, no names that lead out of it,
and no more members or bytes than the limits, whatever the archive says about itself.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from ..errors import ReadError
from . import dump_directory, gzipped

if TYPE_CHECKING:  # imported when an archive is read: most files are none
    import tempfile

MAX_MEMBERS = 50_000
MAX_MEMBER_BYTES = 1 << 30
MAX_TOTAL_BYTES = 2 << 30
MAX_KEPT = 4  # unpacked folders that are kept; the rest are removed, oldest first
_CHUNK = 1 << 20
_WANTED = re.compile(
    r".+\.(?:txt|hlo|pb|mlir|mlirbc|stablehlo|pbtxt|textproto|json)(?:\.gz)?\Z", re.IGNORECASE
)
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
_NOTES: dict[Path, tuple[str, ...]] = {}

# name, whether a plain file, bytes that passing over it takes, open
Member = tuple[str, bool, int, Callable[[], IO[bytes] | None]]


def is_archive(data: bytes) -> bool:
    """A zip or tar file, or a tar file inside gzip."""
    if data[:4] == b"PK\x03\x04" or data[257:262] == b"ustar":
        return True
    if data[:6] == b"\xfd7zXZ\0" or data[:3] == b"BZh":
        import tarfile

        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:*"):
                return True
        except (tarfile.TarError, OSError, EOFError, ValueError):
            return False
    if not gzipped.is_gzip(data):
        return False
    try:
        head = zlib.decompressobj(wbits=31).decompress(data[:65536], 512)
    except zlib.error:
        return False
    return head[257:262] == b"ustar"


def unpack(data: bytes, name: str) -> Path:
    """The folder that holds the dump. Raises ``ReadError`` when nothing in it is one."""
    import tarfile
    import tempfile
    import zipfile

    where = name or "the archive"
    kept = tempfile.TemporaryDirectory(prefix="hloscope-", ignore_cleanup_errors=True)
    root = Path(kept.name)
    skipped: list[str] = []
    count = total = total_passed = 0
    too_large = (
        f"{where} holds more than {MAX_TOTAL_BYTES:,} bytes when unpacked; unpack it "
        "yourself and read the part that is wanted"
    )
    too_many = f"{where} holds more than {MAX_MEMBERS:,} files; unpack it yourself"
    try:
        for member, plain, passed, opened in _members(data, too_many):
            count += 1
            if count > MAX_MEMBERS:
                raise ReadError(too_many)
            if not _WANTED.match(member):
                total_passed += passed
                if total_passed > MAX_TOTAL_BYTES:
                    raise ReadError(too_large)
                continue
            place = _place(root, member) if plain else None
            stream = opened() if place is not None else None
            if place is None or stream is None:
                skipped.append(member)
                continue
            total += _write(stream, place, MAX_TOTAL_BYTES - total, too_large)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError,
            RuntimeError, NotImplementedError) as e:  # fmt: skip
        if isinstance(e, ReadError) or not total:
            kept.cleanup()
            if isinstance(e, ReadError):
                raise
            raise ReadError(f"{where} cannot be unpacked: {e}"[:300]) from None
        skipped.append(f"the rest, because the archive is damaged ({e})"[:200])
    if data[257:262] == b"ustar" and data[-512:].strip(b"\0"):
        skipped.append("the rest, because the archive is damaged (cut off)")
    folder = _dump_folder(root, where)
    _KEPT.append(kept)
    while len(_KEPT) > MAX_KEPT:
        _KEPT.pop(0).cleanup()
    if skipped:
        more = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
        listed = ", ".join(s[:80] for s in skipped[:5])
        _NOTES[folder] = (f"skipped in {where}, not plain files within it: {listed}{more}",)
    return folder


def notes(folder: Path) -> tuple[str, ...]:
    """What was skipped when this folder was unpacked."""
    return _NOTES.get(folder, ())


def _members(data: bytes, too_many: str) -> Iterator[Member]:
    if data[:4] == b"PK\x03\x04":
        import zipfile

        with zipfile.ZipFile(io.BytesIO(data)) as z:
            files = [info for info in z.infolist() if not info.is_dir()]
            if len(files) > MAX_MEMBERS:  # known before any is unpacked
                raise ReadError(too_many)
            for info in files:
                kind = (info.external_attr >> 16) & 0o170000
                plain = kind in (0, 0o100000)
                yield info.filename, plain, 0, lambda info=info: z.open(info)  # type: ignore[misc]
        return
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as t:
        for entry in t:
            if not entry.isdir():
                size = entry.size if entry.isreg() else 0
                yield entry.name, entry.isreg(), size, lambda entry=entry: t.extractfile(entry)  # type: ignore[misc]


def _place(root: Path, member: str) -> Path | None:
    """Where a member goes; None for a name that leads out of the folder."""
    parts = PurePosixPath(member.replace("\\", "/")).parts
    if not parts or len(parts) > 32 or parts[0] == "/" or ".." in parts or ":" in parts[0]:
        return None
    if any("\0" in p or len(p) > 255 for p in parts):
        return None
    return root.joinpath(*parts)


def _write(stream: IO[bytes], place: Path, room: int, too_large: str) -> int:
    place.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with stream, place.open("xb") as out:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > MAX_MEMBER_BYTES or size > room:
                raise ReadError(too_large)
            out.write(chunk)
    return size


def _dump_folder(root: Path, where: str) -> Path:
    """The folder with the most modules among those unpacked; the root where none holds a module
    (a profiler's folders do not)."""
    best, most = None, 0
    folders = [root, *(p for p in sorted(root.rglob("*")) if p.is_dir())]
    for folder in folders:
        try:
            found = len(dump_directory.list_directory(folder))
        except ReadError:
            continue
        if found > most:
            best, most = folder, found
    if best is None and not any(root.rglob("*.xplane.pb")):
        raise ReadError(f"{where} is an archive that holds no HLO dump")
    return best or root
