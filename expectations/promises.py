"""What a release has promised its readers: the public facts its tables are held against."""

from __future__ import annotations

from dataclasses import dataclass

from pgsr_core.postprocessing.protocol import PublicFacts


@dataclass(frozen=True)
class Promises:
    """The authority of every gate. Nothing in it depends on confidential data.

    Where units come from the data, G itself is a declared invariant; the number of groups of
    a region is then neither public nor promised.

    Attributes:
        facts: the region tree, the published sizes, G, and G_r where it is public.
        keeps_region_totals: whether the mechanism keeps G_r in every region, where G_r is
            public, or only G at every level.
        states_margins: whether margins of error are published beside the counts.
    """

    facts: PublicFacts
    keeps_region_totals: bool = False
    states_margins: bool = False

    @property
    def region_groups_are_public(self) -> bool:
        """Whether readers know G_r whatever the mechanism does."""
        return self.facts.groups_by_region is not None

    @property
    def region_totals_are_promised(self) -> bool:
        """Whether the counts of every region must add up to its G_r."""
        return self.keeps_region_totals and self.region_groups_are_public
