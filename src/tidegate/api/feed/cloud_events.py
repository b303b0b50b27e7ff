"""An event of the log in the envelope of CloudEvents 1.0."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tidegate.kernel.model import Event


class CloudEvent(msgspec.Struct, frozen=True):
    """An event of the log in the envelope of CloudEvents 1.0; ``id`` is its position."""

    specversion: str
    id: str
    source: str
    type: str
    time: datetime
    subject: str
    datacontenttype: str
    position: int
    kind: str
    schema: int
    tags: tuple[str, ...]
    actor: str
    data: msgspec.Raw


def to_cloud_event(event: Event) -> CloudEvent:
    """Convert an event to CloudEvents 1.0."""
    return CloudEvent(
        specversion="1.0",
        id=str(event.position),
        source="/v1/events",
        type=f"tidegate.{event.type}",
        time=event.at,
        subject=event.tags[0] if event.tags else "",
        datacontenttype="application/json",
        position=event.position,
        kind=event.kind,
        schema=event.schema,
        tags=event.tags,
        actor=event.meta.actor,
        data=msgspec.Raw(event.body),
    )
