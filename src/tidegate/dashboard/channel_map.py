"""The layout of the channel map: predecessors to the left, in columns, with few crossings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.dashboard.view_models import channel_screens

NODE_WIDTH, NODE_HEIGHT = 216, 92
COLUMN_GAP, ROW_GAP = 132, 26
MARGIN = 2
DEPTH_MAX = 64  # edges have no cycle; if they had one, the layout would still end


def lay_out(
    channels: Sequence[channel_screens.ChannelLine],
    edges: Sequence[tuple[str, str, str]],
    hosts: Mapping[str, str],
) -> channel_screens.Channels:
    """Lay out the map. An edge is (first, then, why it blocks; empty: it does not)."""
    columns = _columns([line.channel for line in channels], edges)
    places: dict[str, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for line in channels:
        column = columns[line.channel]
        row = max(filled.get(column, 0), _row_wanted(line.channel, edges, places))
        filled[column] = row + 1
        places[line.channel] = (column, row)
    nodes = tuple(_node(line, places[line.channel], hosts) for line in channels)
    drawn = tuple(
        _edge(places[first], places[then], first, then, why)
        for first, then, why in edges
        if first in places and then in places
    )
    width = max((node.x for node in nodes), default=0) + NODE_WIDTH + MARGIN
    height = max((node.y for node in nodes), default=0) + NODE_HEIGHT + MARGIN
    return channel_screens.Channels(
        width=width, height=height, nodes=nodes, edges=drawn, channels=tuple(channels)
    )


def _columns(names: Sequence[str], edges: Sequence[tuple[str, str, str]]) -> dict[str, int]:
    """The column of each channel: the length of its longest path from a first channel."""
    depth = dict.fromkeys(names, 0)
    for _ in range(DEPTH_MAX):
        moved = False
        for first, then, _why in edges:
            if first in depth and then in depth and depth[then] <= depth[first] < DEPTH_MAX:
                depth[then] = depth[first] + 1
                moved = True
        if not moved:
            break
    return depth


def _row_wanted(
    name: str, edges: Sequence[tuple[str, str, str]], places: Mapping[str, tuple[int, int]]
) -> int:
    """The row of a channel's first predecessor, so that a chain is a straight line."""
    rows = [places[first][1] for first, then, _ in edges if then == name and first in places]
    return min(rows, default=0)


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    column, row = place
    return (
        MARGIN + column * (NODE_WIDTH + COLUMN_GAP),
        MARGIN + row * (NODE_HEIGHT + ROW_GAP),
    )


def _node(
    line: channel_screens.ChannelLine, place: tuple[int, int], hosts: Mapping[str, str]
) -> channel_screens.MapNode:
    x, y = _corner(place)
    state = line.also[0] if line.also else line.state
    return channel_screens.MapNode(
        channel=line.channel,
        package=line.package,
        x=x,
        y=y,
        release=line.release,
        state=state,
        hosts=hosts.get(line.channel, ""),
        title=f"{line.channel}: {line.release or 'nothing pinned'}, {state.word}",
    )


def _edge(
    start: tuple[int, int], end: tuple[int, int], first: str, then: str, why: str
) -> channel_screens.MapEdge:
    x1, y1 = _corner(start)
    x2, y2 = _corner(end)
    x1, y1, y2 = x1 + NODE_WIDTH, y1 + NODE_HEIGHT // 2, y2 + NODE_HEIGHT // 2
    bend = max((x2 - x1) // 2, 24)
    return channel_screens.MapEdge(
        path=f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 7} {y2}",
        tip=f"M{x2 - 1} {y2}l-9 -5v10z",
        blocks=bool(why),
        text="closed" if why else "",  # the title has the reason
        label_x=(x1 + x2) // 2,
        label_y=(y1 + y2) // 2 - 9,
        title=f"{then} goes after {first}: " + (f"blocked, {why}" if why else "free to go"),
    )
