"""The release registry: which release each scope is pinned to, by which authority, and how so.

rows.py        ACTUAL, EVENT#, EVIDENCE#, COMMAND#: the shape of seed 000
facts.py       what happens
folds.py       how facts become rows
known.py       the releases that may be pinned: the seam to what publishes them
offers.py      published revisions as such releases; composed where packages are
registry.py    register, transition, retire
evidence.py    keep evidence, import a manifest
history.py     what is current, what happened
generic.py     the same transition for rows of your own

What a change owes the world is an intent of ``domain.outbox`` in the same commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidegate.domain.outbox import IntentRequested
from tidegate.domain.provenance import BUILT_IN_RULES, Rules
from tidegate.domain.releases import catalog, evidence, facts, folds
from tidegate.domain.releases import slices as registry
from tidegate.kernel.slices import Slice

_PINS = (facts.ReleaseTransitioned, IntentRequested)


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry's verbs, under one set of rules about evidence."""

    register: Slice
    transition: Slice
    retire: Slice
    keep_evidence: Slice
    import_manifest: Slice

    @property
    def slices(self) -> tuple[Slice, ...]:
        return (
            self.register,
            self.transition,
            self.retire,
            self.keep_evidence,
            self.import_manifest,
        )


def registry_under(rules: Rules) -> Registry:
    """The verbs for an installation that adds evidence triples of its own."""
    return Registry(
        register=Slice(
            name="register-release",
            command=registry.RegisterRelease,
            writes=(facts.ReleaseRegistered, IntentRequested),
            rows=registry.rows_of_pinning,
            decide=partial(registry.decide_register, rules=rules),
        ),
        transition=Slice(
            name="transition-release",
            command=registry.TransitionRelease,
            writes=_PINS,
            rows=registry.rows_of_pinning,
            decide=partial(registry.decide_transition, rules=rules),
        ),
        retire=Slice(
            name="retire-release",
            command=registry.RetireRelease,
            writes=(facts.ReleaseRetired,),
            rows=registry.rows_of_retirement,
            decide=registry.decide_retirement,
        ),
        keep_evidence=Slice(
            name="keep-evidence",
            command=evidence.KeepEvidence,
            writes=(facts.EvidenceKept,),
            rows=evidence.rows_of_keeping,
            decide=partial(evidence.decide_keeping, rules=rules),
        ),
        import_manifest=Slice(
            name="import-manifest",
            command=evidence.ImportManifest,
            writes=(facts.EvidenceKept, *_PINS),
            rows=evidence.rows_of_import,
            decide=partial(evidence.decide_import, rules=rules),
        ),
    )


BUILT_IN = registry_under(BUILT_IN_RULES)

FACTS = (*facts.FACTS, *catalog.FACTS)
SLICES = BUILT_IN.slices
COLLECTIONS = (*folds.COLLECTIONS, *catalog.COLLECTIONS)
FOLDS = (*folds.FOLDS, *catalog.FOLDS)

__all__ = ["BUILT_IN", "COLLECTIONS", "FACTS", "FOLDS", "SLICES", "Registry", "registry_under"]
