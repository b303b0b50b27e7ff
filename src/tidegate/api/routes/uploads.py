"""Uploads: bytes of files, sent before a revision uses them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from tidegate.api.routes.repositories import Label
from tidegate.control.operations import uploads as operation_uploads
from tidegate.domain.access import scopes, steps
from tidegate.domain.content.refusals import ContentTooLarge
from tidegate.domain.packages.refusals import RepositoryNotFound
from tidegate.errors import InsufficientStorage
from tidegate.web import inputs, routing


class UploadPath(inputs.Input, frozen=True):
    repository: Label
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


async def upload(
    request: routing.Request[UploadPath, inputs.Nothing, inputs.Nothing],
    uploads: operation_uploads.UploadOperations,
) -> routing.Response:
    """Upload the raw bytes of a file; they are verified against their SHA-256.

    Use the receipt in the response as the member upload of a file of a revision. No thread is held
    while the client sends.
    """
    body, path = request.incoming, request.path
    assert body is not None, "the route says that it uploads"
    begun = await asyncio.to_thread(
        uploads.begin, request.caller, path.repository, path.sha256, body.announced
    )
    try:
        async for piece in body.pieces():
            await asyncio.to_thread(begun.write, piece)
        return routing.Response(await asyncio.to_thread(begun.finish))
    finally:
        begun.cancel()


def _scope(request: routing.Request[UploadPath, inputs.Nothing, inputs.Nothing]) -> str:
    return scopes.repository_scope(request.path.repository)


ROUTES = (
    routing.Route(
        "PUT",
        "/v1/repositories/{repository}/uploads/{sha256}",
        upload,
        routing.requires_step(steps.CREATE_REVISION, _scope),
        operation_uploads.StoredUpload,
        status=201,
        consumes=routing.Consumes.BYTES,
        uploads=True,
        errors=(
            RepositoryNotFound,
            ContentTooLarge,
            operation_uploads.UploadMismatch,
            operation_uploads.UploadsBusy,
            InsufficientStorage,
        ),
    ),
)
