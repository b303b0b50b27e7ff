"""Which permission each command on packages asks for. Who has it, and where, is for the edges."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.creation import CreateRevision
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.lifecycle import BY_VERB, Verb
from tidegate.domain.packages.repositories import ChangeRepository, CreateRepository
from tidegate.domain.packages.updates import ReplaceResources, SetConditions, UpdateRevision
from tidegate.domain.packages.wholes import DeletePackage, ImportPackage

READ: Final = "revision.read"
CREATE: Final = "revision.create"
EDIT: Final = "revision.edit"
SET_CONDITION: Final = "revision.set_condition"
DELETE: Final = "revision.delete"
ADMINISTER: Final = "repository.administer"

# An update that also names a lifecycle asks for the permission of that step besides.
PERMISSIONS: Final[Mapping[type[Struct], str]] = MappingProxyType(
    {
        CreateRepository: ADMINISTER,
        ChangeRepository: ADMINISTER,
        ImportPackage: ADMINISTER,
        CreateRevision: CREATE,
        UpdateRevision: EDIT,
        ReplaceResources: EDIT,
        SetConditions: SET_CONDITION,
        ProposeRevision: BY_VERB[Verb.PROPOSE].permission,
        WithdrawProposal: BY_VERB[Verb.WITHDRAW].permission,
        ApproveRevision: BY_VERB[Verb.APPROVE].permission,
        RejectProposal: BY_VERB[Verb.REJECT].permission,
        ProposeDeletion: BY_VERB[Verb.PROPOSE_DELETION].permission,
        RejectDeletion: BY_VERB[Verb.REJECT_DELETION].permission,
        DeleteRevision: DELETE,
        DeletePackage: DELETE,
    }
)
