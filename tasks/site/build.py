"""Building the site: what the log and the bundles say, page by page, then all of it at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.ledger.inspection import NoLedger
from tasks.pages.frame import asset, render_page
from tasks.publication.documents import REPORT
from tasks.publication.facts import SIMULATION_NOTICE
from tasks.publication.report.bins import bin_label, size_bins
from tasks.publication.report.figures import MOST_BARS
from tasks.site.bundles import Bundle, NoBundle, find_bundle
from tasks.site.comparison import CONFIDENCE, Verdict, compare
from tasks.site.figures import change_svg
from tasks.site.history import ProductHistory, ReleaseHistory, budgets_of, products_of
from tasks.site.operations import Operation, configuration_of, operations_of
from tasks.site.place import check_place, site_folder
from tasks.site.released import released
from tasks.site.settings import compare_configurations, compare_settings
from tasks.site.views import (
    MOST_COMPARED,
    ComparisonLink,
    ProductView,
    ReleaseView,
    budget_views,
    event_rows,
    public_heads,
    verification_of,
)
from tasks.storage.zones import Home
from tasks.timeline import Log, read_log

OVERVIEW = "index.html"
BUDGETS = "budgets.html"
TIMELINE = "timeline.html"
OPERATIONS = "operations.html"
HASHES = "hashes.txt"


@dataclass(frozen=True)
class Built:
    """A site that stands.

    Attributes:
        folder: where.
        releases: how many it shows.
        comparisons: of two releases each.
        problems: what is wrong with the ledger; the pages say that something is.
    """

    folder: Path
    releases: int
    comparisons: int
    problems: tuple[str, ...]

    @property
    def index(self) -> Path:
        """The page to open first."""
        return self.folder / OVERVIEW


def build_site(home: Home, out: Path, *, internal: bool = False) -> Built:
    """Build the site of an installation's ledger; the same ledger and bundles give the same bytes.

    Args:
        home: the installation.
        out: a new or empty folder, or an earlier site, which it takes the place of.
        internal: add the operator's view; `out` must be in the confidential zone then.

    Raises:
        NoLedger: nothing was released here.
        InternalSiteOutside, PublicSiteInside, NotASite: the site must not go there.
        SiteNotWritten: the disk did not take it.
    """
    log = read_log(home)
    if log is None:
        raise NoLedger
    check_place(out, home, internal=internal)
    site = _Site(home, log, internal=internal)
    with site_folder(out, internal=internal) as draft:
        for path, text in site.pages():
            _write(draft / path, text)
        for release in site.releases:
            if release.bundle is not None and release.bundle.report is not None:
                shutil.copyfile(release.bundle.report, draft / release.folder / REPORT)
    comparisons = sum(len(release.comparisons) for release in site.releases)
    return Built(out, len(site.releases), comparisons, log.problems)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


class _Site:
    """Everything that the pages show, and the pages."""

    def __init__(self, home: Home, log: Log, *, internal: bool) -> None:
        self._home = home
        self._internal = internal
        self._events = log.events if internal else released(log.events)
        histories = products_of(self._events)
        self._products = tuple(
            _product_view(home, history, internal=internal)
            for history in histories
            if internal or history.is_public
        )
        self._budgets = budget_views(budgets_of(self._events), histories, self._events)
        self._operations = operations_of(home, log.events) if internal else ()
        every = frozenset(event.head for event in log.events)
        self._heads = every if internal else public_heads(log, self.releases)
        self._verification = verification_of(log, self._events, self._heads)

    @property
    def releases(self) -> tuple[ReleaseView, ...]:
        """All of them."""
        return tuple(release for product in self._products for release in product.releases)

    def pages(self) -> Iterator[tuple[str, str]]:
        """Every page: its place in the site, and its text."""
        yield OVERVIEW, self._page("index", OVERVIEW, self._overview())
        yield BUDGETS, self._page("budgets", BUDGETS, {"budgets": self._budgets})
        yield TIMELINE, self._page("timeline", TIMELINE, {"events": self._rows()})
        heads = sorted(self._heads, key=lambda head: head.sequence)
        yield HASHES, "".join(f"{head.sequence} {head.hash}\n" for head in heads)
        if self._internal:
            operations = {"operations": self._operations}
            yield OPERATIONS, self._page("operations", OPERATIONS, operations)
        for product in self._products:
            most = {"product": product, "most_compared": MOST_COMPARED}
            yield product.page, self._page("product", product.page, most)
            for release in product.releases:
                yield release.page, self._release(product, release)
                for link in release.comparisons:
                    yield link.page, self._comparison(product, release, link)

    def _overview(self) -> dict[str, Any]:
        published = [r for r in self.releases if r.history.published_on]
        return {
            "products": self._products,
            "budgets": self._budgets,
            "published": len(published),
            "withdrawn": sum(r.withdrawn is not None for r in published),
        }

    def _rows(self, release: ReleaseHistory | None = None) -> Sequence[Any]:
        pages = {(r.history.product, r.history.release): r.page for r in self.releases}
        events = self._events if release is None else release.events
        return event_rows(events, pages, heads=self._heads, internal=self._internal)

    def _release(self, product: ProductView, release: ReleaseView) -> str:
        context = {
            "product": product,
            "release": release,
            "events": self._rows(release.history),
            "operation": self._operation(release),
            "signature": release.bundle.signature if release.bundle is not None else None,
            "heads": self._heads,
        }
        script = [asset(__package__, "embed.js")] if release.has_report else []
        return self._page("release", release.page, context, scripts=script, frames=bool(script))

    def _operation(self, release: ReleaseView) -> Operation | None:
        names = (release.history.product, release.history.release)
        found = (o for o in self._operations if (o.state.product, o.state.release) == names)
        return next(found, None)

    def _comparison(self, product: ProductView, release: ReleaseView, link: ComparisonLink) -> str:
        earlier, later = _bundle(link.earlier), _bundle(release)
        found = compare(earlier, later)
        ranges = [bin_ for bin_ in size_bins(found.sizes) or () if bin_[1] > bin_[0]]
        bins = {bin_[0]: bin_label(bin_) for bin_ in ranges}
        settings = compare_settings(earlier, later)
        sides = (link.earlier.history, release.history)

        def label(size: int) -> str:
            return f"{size:,} or more" if size in found.largest else f"{size:,}"

        context = {
            "product": product,
            "release": release,
            "comparison": link,
            "found": found,
            "verdicts": [verdict for verdict in Verdict if _occurs(verdict, found.states_margins)],
            "cells": sum(level.cells for level in found.levels),
            "beyond": sum(level.verdicts[Verdict.BEYOND] for level in found.levels),
            "confidence": CONFIDENCE,
            "svg": change_svg(found) if found.root else "",
            "many_sizes": len(found.sizes) > MOST_BARS and not bins,
            "draws_margins": found.states_margins and not bins,
            "root_label": lambda size: bins.get(size) or label(size),
            "label": label,
            "signed": lambda number: f"{number:+,}".replace("-", "−") if number else "0",
            "same_measurements": sides[0].measurements == sides[1].measurements,
            "settings": settings,
            "changed_settings": sum(setting.changed for setting in settings),
            "configuration": self._configurations(*sides) if self._internal else (),
        }
        return self._page("compare", link.page, context)

    def _configurations(self, earlier: ReleaseHistory, later: ReleaseHistory) -> Sequence[Any]:
        found = [configuration_of(self._home, r.product, r.release) for r in (earlier, later)]
        return compare_configurations(*found)

    def _page(
        self,
        name: str,
        place: str,
        context: Mapping[str, Any],
        *,
        scripts: Sequence[str] = (),
        frames: bool = False,
    ) -> str:
        pages = [(OVERVIEW, "Overview"), (BUDGETS, "Budgets"), (TIMELINE, "Timeline")]
        if self._internal:
            pages.append((OPERATIONS, "Operations"))
        filled = {
            **context,
            "internal": self._internal,
            "verification": self._verification,
            "root": "../" * place.count("/"),
            "here": place,
            "site_pages": pages,
            "version": version("pgsr"),
            "simulation_notice": SIMULATION_NOTICE,
        }
        return render_page(
            f"site/{name}.html.jinja",
            filled,
            package=__package__,
            scripts=scripts,
            style=asset(__package__, "site.css"),
            frames=frames,
        )


def _bundle(release: ReleaseView) -> Bundle:
    if release.bundle is None:
        raise ValueError("a release without a bundle is compared with nothing")
    return release.bundle


def _occurs(verdict: Verdict, states_margins: bool) -> bool:
    """Whether a verdict is possible at all: with margins three are, without them two."""
    if verdict is Verdict.UNKNOWN:
        return not states_margins
    return states_margins or verdict is Verdict.SAME


def _product_view(home: Home, history: ProductHistory, *, internal: bool) -> ProductView:
    bundles: dict[str, Bundle] = {}
    reasons: dict[str, str] = {}
    releases = [release for release in history.releases if internal or release.is_out]
    for release in releases:
        try:
            bundles[release.release] = find_bundle(home, release)
        except NoBundle as reason:
            reasons[release.release] = str(reason)
    views = [
        ReleaseView(
            release,
            bundles.get(release.release),
            reasons.get(release.release, ""),
            replaced_by=None,
        )
        for release in releases
    ]
    replaced = {view.replaces: view.history.release for view in views if view.replaces}
    named = [replace(view, replaced_by=replaced.get(view.history.release)) for view in views]
    return ProductView(history, tuple(_with_comparisons(named)))


def _with_comparisons(views: Sequence[ReleaseView]) -> Iterator[ReleaseView]:
    """Compare each release with its predecessor and with what it replaces; the newest with all."""
    comparable = [place for place, view in enumerate(views) if view.bundle is not None]
    newest = comparable[-MOST_COMPARED:]
    for place, view in enumerate(views):
        before = [other for other in comparable if other < place] if place in comparable else []
        earlier = [
            views[other]
            for other in reversed(before)
            if other == before[-1]
            or views[other].history.release == view.replaces
            or (place in newest and other in newest)
        ]
        links = (
            ComparisonLink(other, f"{view.folder}/against-{other.history.release}.html")
            for other in earlier
        )
        yield replace(view, comparisons=tuple(links))
