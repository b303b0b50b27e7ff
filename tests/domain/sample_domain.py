"""An orchard: a small world of facts, folds, machines and slices to drive the write path with.

FruitPicked ──▶ tree machine ──▶ BasketFilled ──▶ barn machine ──▶ CartSent + an errand
            └─▶ pickers (a sum)  └─▶ records (a maximum: most picks leave it alone)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from tidegate.errors import IllegalTransition, NotFound, Refused
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Fold, Folds, Machine, WorkRow
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary, facts

T0 = datetime(2026, 5, 1, 6, tzinfo=UTC)
BASKET = 10  # fruit
CART = 3  # baskets

# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


class TreePlanted(Struct, frozen=True):
    tree_id: str
    barn: str


class FruitPicked(Struct, frozen=True):
    tree_id: str
    picker: str
    count: int
    seq: int


class TreeFelled(Struct, frozen=True):
    tree_id: str


class BasketFilled(Struct, frozen=True):
    barn_id: str
    tree: str


class CartSent(Struct, frozen=True):
    barn_id: str
    number: int


class BarnClosed(Struct, frozen=True):
    barn_id: str


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


class Tree(Struct, frozen=True, omit_defaults=True):
    tree_id: str
    barn: str = ""
    fruit: int = 0
    seq: int = 0
    picked_at: datetime | None = None


class Barn(Struct, frozen=True, omit_defaults=True):
    barn_id: str
    baskets: int = 0
    carts: int = 0
    closed: bool = False


class Picker(Struct, frozen=True, omit_defaults=True):
    name: str
    fruit: int = 0


class Best(Struct, frozen=True, omit_defaults=True):
    """The largest single pick of a picker."""

    name: str
    count: int = 0


class Errand(Struct, frozen=True):
    text: str


TREES = Collection(
    "trees",
    Tree,
    writers=Writers.FOLDED,
    nature=Nature.CACHE,
    columns=("barn",),
    indexes=(Index("by_barn", ("barn",)),),
)
BARNS = Collection("barns", Barn, writers=Writers.FOLDED, nature=Nature.DERIVED)
PICKERS = Collection("pickers", Picker, writers=Writers.FOLDED, nature=Nature.DERIVED)
RECORDS = Collection("best_picks", Best, writers=Writers.FOLDED, nature=Nature.DERIVED)
ERRANDS = Collection("errands", Errand, nature=Nature.QUEUE)
COLLECTIONS = (TREES, BARNS, PICKERS, RECORDS, ERRANDS)


def tree_key(tree: str) -> Key:
    return Key(TREES.name, tree)


def barn_key(barn: str) -> Key:
    return Key(BARNS.name, barn)


def errand_key(barn: str, number: int) -> Key:
    return Key(ERRANDS.name, f"{barn}/{number}")


# ── folds ─────────────────────────────────────────────────────────────────────────────────────────


class BarnShut(Refused):
    """A closed barn accepts no baskets."""

    code = "barn_shut"


def step_tree(
    tree: Tree, fact: TreePlanted | FruitPicked | TreeFelled, now: datetime
) -> tuple[Tree | None, Sequence[Struct]]:
    match fact:
        case TreePlanted(barn=barn) if not tree.barn:
            return replace(tree, barn=barn), ()
        case FruitPicked(count=count, seq=seq) if tree.barn:
            fruit = tree.fruit + count
            baskets = fruit // BASKET - tree.fruit // BASKET
            picked = replace(tree, fruit=fruit, seq=seq, picked_at=now)
            return picked, (BasketFilled(tree.barn, tree.tree_id),) * baskets
        case TreeFelled() if tree.barn:
            return None, ()
        case _:
            raise IllegalTransition("tree", tree.barn and "planted", type(fact).__name__)


def step_barn(
    barn: Barn, fact: BasketFilled | CartSent | BarnClosed, now: datetime
) -> tuple[Barn, Sequence[Struct]]:
    match fact:
        case BasketFilled() if barn.closed:
            raise BarnShut(f"{barn.barn_id} is closed")
        case BasketFilled():
            barn = replace(barn, baskets=barn.baskets + 1)
            full = barn.baskets % CART == 0
            return barn, (CartSent(barn.barn_id, barn.baskets // CART),) if full else ()
        case CartSent(number=number):
            errand = WorkRow(errand_key(barn.barn_id, number), Errand("fetch the cart"))
            return replace(barn, carts=number), (errand,)
        case BarnClosed():
            return replace(barn, closed=True), ()


tree_machine = Machine(
    collection=TREES,
    number=1,
    reads=(TreePlanted, FruitPicked, TreeFelled),
    ids=lambda fact: (fact.tree_id,),
    start=lambda id, fact: Tree(id),
    step=step_tree,
)
barn_machine = Machine(
    collection=BARNS,
    number=1,
    reads=(BasketFilled, CartSent, BarnClosed),
    ids=lambda fact: (fact.barn_id,),
    start=lambda id, fact: Barn(id),
    step=step_barn,
)
picker_fold = Fold(
    collection=PICKERS,
    number=1,
    reads=(FruitPicked,),
    ids=lambda fact: (fact.picker,),
    start=lambda id, fact: Picker(id),
    step=lambda row, fact, now: replace(row, fruit=row.fruit + fact.count),
)
record_fold = Fold(
    collection=RECORDS,
    number=1,
    reads=(FruitPicked,),
    ids=lambda fact: (fact.picker,),
    start=lambda id, fact: Best(id),
    step=lambda row, fact, now: replace(row, count=max(row.count, fact.count)),
)

# ── slices ────────────────────────────────────────────────────────────────────────────────────────


class PlantTree(Struct, frozen=True):
    tree_id: str
    barn: str


class FellTree(Struct, frozen=True):
    tree_id: str


class HandPick(Struct, frozen=True):
    tree_id: str
    picker: str
    count: int


class ReportPick(Struct, frozen=True):
    tree_id: str
    picker: str
    count: int
    seq: int


class CloseBarn(Struct, frozen=True):
    barn_id: str


class SequenceGap(Refused):
    """The report before this one is missing."""

    code = "sequence_gap"


def is_planted(planted: bool, fact: TreePlanted | TreeFelled) -> bool:
    return isinstance(fact, TreePlanted)


def decide_plant(planted: bool, command: PlantTree, now: datetime) -> Sequence[Struct]:
    return () if planted else (TreePlanted(command.tree_id, command.barn),)


def decide_fell(planted: bool, command: FellTree, now: datetime) -> Sequence[Struct]:
    if not planted:
        raise NotFound(f"there is no tree {command.tree_id}")
    return (TreeFelled(command.tree_id),)


def decide_hand_pick(planted: bool, command: HandPick, now: datetime) -> Sequence[Struct]:
    if not planted:
        raise NotFound(f"there is no tree {command.tree_id}")
    if not command.count:
        return ()
    return (FruitPicked(command.tree_id, command.picker, command.count, 0),)


def decide_report(rows: tuple[Tree | None], report: ReportPick, now: datetime) -> Sequence[Struct]:
    (tree,) = rows
    if tree is None:
        raise NotFound(f"there is no tree {report.tree_id}")
    if report.seq <= tree.seq:
        return ()
    if report.seq > tree.seq + 1:
        raise SequenceGap(f"{report.tree_id} expects {tree.seq + 1}", expected=tree.seq + 1)
    return (FruitPicked(report.tree_id, report.picker, report.count, report.seq),)


def decide_close(rows: tuple[Barn | None], command: CloseBarn, now: datetime) -> Sequence[Struct]:
    (barn,) = rows
    return () if barn is not None and barn.closed else (BarnClosed(command.barn_id),)


def say_types(decided: Sequence[Struct]) -> bytes:
    return " ".join(type(fact).__name__ for fact in decided).encode()


plant_tree = Slice(
    name="plant-tree",
    command=PlantTree,
    reads=(TreePlanted, TreeFelled),
    writes=(TreePlanted,),
    start=lambda command: False,
    evolve=is_planted,
    decide=decide_plant,
    answer=say_types,
)
fell_tree = Slice(
    name="fell-tree",
    command=FellTree,
    reads=(TreePlanted, TreeFelled),
    writes=(TreeFelled,),
    start=lambda command: False,
    evolve=is_planted,
    decide=decide_fell,
    answer=say_types,
)
# It reads no picks, so two picks of one tree conflict only on the rows of folds.
hand_pick = Slice(
    name="hand-pick",
    command=HandPick,
    reads=(TreePlanted, TreeFelled),
    writes=(FruitPicked,),
    start=lambda command: False,
    evolve=is_planted,
    decide=decide_hand_pick,
    answer=say_types,
)
report_pick = Slice(
    name="report-pick",
    command=ReportPick,
    writes=(FruitPicked,),
    rows=lambda report: (tree_key(report.tree_id),),
    decide=decide_report,
    answer=say_types,
)
close_barn = Slice(
    name="close-barn",
    command=CloseBarn,
    writes=(BarnClosed,),
    rows=lambda command: (barn_key(command.barn_id),),
    decide=decide_close,
)

FACTS = facts("orchard", TreePlanted, FruitPicked, TreeFelled, BasketFilled, CartSent, BarnClosed)
SLICES = (plant_tree, fell_tree, hand_pick, report_pick, close_barn)
FOLD_LIST = (tree_machine, barn_machine, picker_fold, record_fold)
SCHEMA = Schema(Vocabulary(FACTS, SLICES), COLLECTIONS)
FOLDS = Folds(SCHEMA, FOLD_LIST)
