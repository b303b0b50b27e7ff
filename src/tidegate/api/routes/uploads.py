"""Bytes of files, sent raw before a revision names them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from tidegate.api.routes.repositories import Label
from tidegate.control.operations.uploads import (
    StoredUpload,
    UploadMismatch,
    UploadOperations,
    UploadsBusy,
)
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import CREATE_REVISION
from tidegate.domain.content.refusals import ContentTooLarge
from tidegate.domain.packages.refusals import RepositoryNotFound
from tidegate.errors import InsufficientStorage
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Consumes, Request, Response, Route, requires_step


class UploadPath(Input, frozen=True):
    repository: Label
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


async def upload(
    request: Request[UploadPath, Nothing, Nothing], uploads: UploadOperations
) -> Response:
    """Store the bytes of a file, raw; they are compared with the SHA-256 while they arrive.

    The receipt of the answer names them as the member upload of a file of a revision. No thread is
    held while the client sends.
    """
    body, path = request.incoming, request.path
    assert body is not None, "the route says that it uploads"
    begun = await asyncio.to_thread(
        uploads.begin, request.caller, path.repository, path.sha256, body.announced
    )
    try:
        async for piece in body.pieces():
            await asyncio.to_thread(begun.write, piece)
        return Response(await asyncio.to_thread(begun.finish))
    finally:
        begun.cancel()


def _scope(request: Request[UploadPath, Nothing, Nothing]) -> str:
    return repository_scope(request.path.repository)


ROUTES = (
    Route(
        "PUT",
        "/v1/repositories/{repository}/uploads/{sha256}",
        upload,
        requires_step(CREATE_REVISION, _scope),
        StoredUpload,
        status=201,
        consumes=Consumes.BYTES,
        uploads=True,
        errors=(
            RepositoryNotFound,
            ContentTooLarge,
            UploadMismatch,
            UploadsBusy,
            InsufficientStorage,
        ),
    ),
)
