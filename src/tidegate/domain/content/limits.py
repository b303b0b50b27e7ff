"""The configured limits on the content of a revision."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidegate.domain.content import manifests, refusals

MIB: Final = 1024 * 1024


class ContentLimits(Struct, frozen=True, kw_only=True):
    """Each field is a setting of the server with the same name.

    The limits apply when files are uploaded. Content stored under larger limits stays valid.
    """

    file_bytes_max: int = 32 * MIB  # of one stored file
    revision_bytes_max: int = 32 * MIB  # of all stored files of a revision
    revision_files_max: int = 10_000  # including references
    references_bytes_max: int = 1024 * MIB  # of all references of a revision

    def check(self, manifest: manifests.FileManifest) -> None:
        """Raises: ContentTooLarge: its message names the limit and the setting."""
        kept = tuple(file for file in manifest.files if file.is_kept)
        for file in kept:
            self.check_file(file.path, file.bytes)
        self.check_count(len(manifest.files))
        total = sum(file.bytes for file in kept)
        if total > self.revision_bytes_max:
            raise _too_large("The files have", total, self, "revision_bytes_max")
        total = sum(file.bytes for file in manifest.references)
        if total > self.references_bytes_max:
            raise _too_large("The references have", total, self, "references_bytes_max")

    def check_file(self, name: str, size: int) -> None:
        """Raises: ContentTooLarge."""
        if size > self.file_bytes_max:
            raise _too_large(f"{name} has", size, self, "file_bytes_max")

    def check_count(self, count: int) -> None:
        """Raises: ContentTooLarge."""
        if count > self.revision_files_max:
            raise _too_large("The revision has", count, self, "revision_files_max")


def _too_large(
    what: str, found: int, limits: ContentLimits, setting: str
) -> refusals.ContentTooLarge:
    allowed: int = getattr(limits, setting)
    unit = "files" if setting == "revision_files_max" else "bytes"
    return refusals.ContentTooLarge(
        f"{what} {found} {unit}, and this server allows {allowed}. An operator can raise the"
        f" setting {setting}.",
        found=found,
        allowed=allowed,
        setting=setting,
    )
