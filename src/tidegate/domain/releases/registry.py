"""The commands on the registry, under one set of rules about evidence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidegate.domain.outbox.facts import IntentRequested
from tidegate.domain.provenance import BUILT_IN_RULES, Rules
from tidegate.domain.releases import evidence, facts, slices
from tidegate.kernel.slices import Slice

_PINS = (facts.ReleaseTransitioned, IntentRequested)


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry's slices, under one set of rules about evidence."""

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
    """Build the slices for an installation that adds its own evidence triples."""
    return Registry(
        register=Slice(
            name="register-release",
            command=slices.RegisterRelease,
            writes=(facts.ReleaseRegistered, IntentRequested),
            rows=slices.rows_of_pinning,
            decide=partial(slices.decide_register, rules=rules),
        ),
        transition=Slice(
            name="transition-release",
            command=slices.TransitionRelease,
            writes=_PINS,
            rows=slices.rows_of_pinning,
            decide=partial(slices.decide_transition, rules=rules),
        ),
        retire=Slice(
            name="retire-release",
            command=slices.RetireRelease,
            writes=(facts.ReleaseRetired,),
            rows=slices.rows_of_retirement,
            decide=slices.decide_retirement,
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
