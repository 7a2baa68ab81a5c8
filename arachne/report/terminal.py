"""Tables for a terminal of 80 columns; plain text where there is none."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from arachne.evidence import Accuracy, Evidence, PartEvidence, Rate
from arachne.evidence.grade import NOT_SHOWN, NOTHING_WITHIN, REDUCED, REMOVED, TOO_FEW, WORSE
from arachne.evidence.group_summary import format_value
from arachne.evidence.verdict import capitalise
from arachne.report.console import Ink, SafeConsole
from arachne.report.objects import ranked_suspects
from arachne.report.patch_rows import MAX_LISTED_WEIGHTS, all_rows
from arachne.text import p_value, percent, percent_change, pluralise

if TYPE_CHECKING:
    from arachne.causes import Cause
    from arachne.evidence.fairness import Fairness
    from arachne.evidence.scan import Scan
    from arachne.localise.base import Localisation
    from arachne.patch import Patch

WIDTH = 80
MOST_CLASSES = 3
MOST_GROUPS = 12
MOST_WEIGHTS = 3
MOST_FAULTS = 6
MOST_WILDCARDS = 3
MOST_SUSPECTS = 20
LONGEST_NAME = 44
"""Characters of a weight's name; of a longer one the end is shown, which tells weights apart."""

STYLES = {
    REMOVED: "bold green",
    REDUCED: "bold yellow",
    NOT_SHOWN: "bold red",
    WORSE: "bold red",
    TOO_FEW: "bold magenta",
    NOTHING_WITHIN: "bold red",
}


@dataclass(frozen=True)
class EvidenceTable:
    """The verdict, its numbers, and the largest changes; beside them those of copies, by their names."""

    evidence: Evidence
    patch: Patch | None = None
    connection: str | None = None
    copies: Mapping[str, Evidence] = field(default_factory=dict)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich when the table is printed."""
        ink = Ink(options.ascii_only)
        verdict = self.evidence.verdict
        heading, width = verdict.heading.upper(), options.max_width
        head = ink.paragraph(f"{heading}: {verdict.sentence}.", width)
        head.stylize(STYLES[verdict.word], 0, len(heading))
        yield head
        if verdict.balance:
            yield ink.paragraph(f"{capitalise(verdict.balance)}.", width)
        yield self._numbers(ink)
        yield from self._groups(ink)
        yield from self._classes(ink, width)
        yield from self._figures(ink)
        if self.connection is not None:
            yield ink.paragraph(f"{capitalise(self.connection)}.", width)
        elif self.patch is not None:
            yield from self._weights(self.patch, ink)
        for note in self.evidence.notes:
            yield ink.paragraph(note, width)

    def _numbers(self, ink: Ink) -> Table:
        parts = [part for part in (self.evidence.seen, self.evidence.held_out) if part is not None]
        names = [*("seen", self.evidence.basis)[-len(parts) :], *(f"in {_end_of(name)}" for name in self.copies)]
        parts += [copy.held_out for copy in self.copies.values()]
        table = _table("", *names, justify="left")
        cells = [_cells(part) for part in parts]
        for label in _cells(self.evidence.held_out):
            table.add_row(label, *(ink.text(own.get(label, "")) for own in cells))
            if label.startswith("fault") and len(self.evidence.held_out.targets) > 1:
                for several in zip(*(part.targets for part in parts), strict=True):
                    counts = (f"{target.errors_before:,} → {target.errors_after:,}" for target in several)
                    table.add_row(ink.text(f"  {several[0].target}"), *map(ink.text, counts))
        fairness = [part.fairness for part in parts if part.fairness is not None]
        if fairness:
            table.add_row(ink.text(str(fairness[0].objective)), *(ink.text(_objective(one)) for one in fairness))
        return table

    def _groups(self, ink: Ink) -> Iterator[RenderableType]:
        fairness = self.evidence.held_out.fairness
        if fairness is None:
            return
        table = _table(str(fairness.objective.group_column), "inputs", "before", "after", "points", "fixed", "broken")
        for one in fairness.groups[:MOST_GROUPS]:
            points = ink.text(f"{100 * one.change:+.1f}")
            points.stylize("green" if one.change > 0 else "red" if one.change < 0 else "")
            shares = [ink.text(_with_interval(rate)) for rate in (one.before, one.after)]
            table.add_row(ink.text(one.name), f"{one.total:,}", *shares, points, f"{one.fixed:,}", f"{one.broken:,}")
        if len(fairness.groups) > MOST_GROUPS:
            table.add_row(f"and {len(fairness.groups) - MOST_GROUPS} more", *[""] * 6)
        yield table

    def _classes(self, ink: Ink, width: int) -> Iterator[RenderableType]:
        changed = most_changed(self.evidence.held_out.classes)
        if not changed:
            return
        yield ink.paragraph(_class_line(self.evidence.held_out.classes), width)
        fallen = [accuracy for accuracy in changed if accuracy.change < 0]
        if not fallen:
            return
        noun = f"{self.evidence.held_out.noun}s"
        table = _table(f"classes that fell most, {self.evidence.basis}", noun, "accuracy", "points")
        for accuracy in fallen[:MOST_CLASSES]:
            before, after = percent(accuracy.before.value), percent(accuracy.after.value)
            points = Text(f"{100 * accuracy.change:+.1f}", style="red")
            table.add_row(ink.text(accuracy.name), str(accuracy.total), ink.text(f"{before} → {after}"), points)
        yield table

    def _figures(self, ink: Ink) -> Iterator[RenderableType]:
        figures = self.evidence.figures
        if figures is None:
            return
        shown = figures.texts()
        table = _table(*shown["columns"])
        for row in shown["rows"]:
            table.add_row(*map(ink.text, row))
        yield ink.text(f"{figures.title}, {self.evidence.basis}:")
        yield table

    def _weights(self, patch: Patch, ink: Ink) -> Iterator[RenderableType]:
        if not len(patch):
            yield Text("The patch changes no weight.")
            return
        for change in patch.low_rank:
            yield ink.text(f"{change.tensor.name}: {pluralise(change.weights, 'weight')}{change.description}")
        if not patch.entries:
            return
        if len(patch) > MAX_LISTED_WEIGHTS:
            rows = all_rows(patch.changes)
            table = _table(f"{len(patch):,} weights changed, by row", "weights", "size", "largest")
            for row in rows[:MOST_WEIGHTS]:
                cells = (str(row.weights), f"{row.size:.3g}", f"{row.largest:+.3g}")
                table.add_row(ink.text(_end_of(f"{row.tensor}, {row.name}")), *cells)
            if len(rows) > MOST_WEIGHTS:
                table.add_row(f"and {pluralise(len(rows) - MOST_WEIGHTS, 'more row')}", "", "", "")
            yield table
            return
        table = _table("weight", "old", "new")
        for entry in patch.entries[:MOST_WEIGHTS]:
            table.add_row(ink.text(_end_of(str(entry.address))), f"{entry.old:.6g}", f"{entry.new:.6g}")
        if len(patch.entries) > MOST_WEIGHTS:
            table.add_row(f"and {len(patch.entries) - MOST_WEIGHTS:,} more", "", "")
        yield table


@dataclass(frozen=True)
class ScanTable:
    """The mistakes a model makes, the most frequent first."""

    scan: Scan
    causes: Sequence[Cause] | None = None
    groups: Fairness | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich when the table is printed."""
        ink = Ink(options.ascii_only)
        faults, noun = self.scan.faults, self.scan.task.NOUN
        wrong, kinds, counted = sum(fault.count for fault in faults), len(faults), len(self.scan.true_classes)
        counts = f"{wrong:,} of {counted:,} {noun}s wrong, {pluralise(kinds, 'kind')} of mistake"
        yield Text(f"accuracy {percent(self.scan.accuracy)}: {counts}")
        yield from self._groups(ink)
        if not faults:
            return
        yield from self._causes(ink, wrong, options.max_width)
        table = _table("target", "count", "share of mistakes")
        table.add_column("")
        for fault in faults[:MOST_FAULTS]:
            bar = ink.bar(fault.count / faults[0].count)
            table.add_row(ink.text(fault.target), str(fault.count), percent(fault.share), bar)
        yield table
        rarer = f"and {pluralise(kinds - MOST_FAULTS, 'rarer kind')}, which --json lists" if kinds > MOST_FAULTS else ""
        together = ", ".join(
            f"{fault.target} {fault.count} ({percent(fault.share)})" for fault in self.scan.wildcards[:MOST_WILDCARDS]
        )
        if rarer or together:
            said = "; ".join(filter(None, [rarer, f"together: {together}" * bool(together)]))
            yield ink.paragraph(said, options.max_width)

    def _groups(self, ink: Ink) -> Iterator[RenderableType]:
        if self.groups is None:
            return
        low, high = (100 * one for one in self.groups.before.interval)
        unit = "%" if self.groups.objective.RISES else "points"
        yield ink.text(
            f"{self.groups.objective}: {format_value(self.groups, self.groups.before.value)} "
            f"(95 %: {low:.1f} – {high:.1f} {unit})"
        )
        by_class = bool(self.groups.classes)
        table = _table(
            f"{'class, ' if by_class else ''}{self.groups.objective.group_column}", "inputs", "right", "95 %"
        )
        for one in (self.groups.classes or self.groups.groups)[:MOST_FAULTS]:
            name = one.name if one.label is None else f"{one.label}, {one.name}"
            low, high = (100 * end for end in one.before.interval)
            table.add_row(
                ink.text(name), f"{one.total:,}", percent(one.before.value), ink.text(f"{low:.1f} – {high:.1f}")
            )
        yield table

    def _causes(self, ink: Ink, wrong: int, width: int) -> Iterator[RenderableType]:
        if self.causes is None:
            return
        if self.causes:
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
            left = width - 2 - max(len(cause.target) for cause in self.causes)
            for cause in self.causes:
                shown = ink.paragraph(f"{cause.sentence} ({p_value(cause.p)})", left)
                if cause.experiment is not None:
                    shown = Text.assemble(shown, "\n", ink.paragraph(cause.experiment.sentence, left))
                table.add_row(ink.text(cause.target), shown)
            yield table
        rest = wrong - sum(cause.count for cause in self.causes)
        if rest:
            yield Text(f"no common cause found for {pluralise(rest, 'error')}; confusions below")


@dataclass(frozen=True)
class LocalisationTable:
    """The suspects with both their scores, the most suspicious first."""

    localisation: Localisation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich when the table is printed."""
        ink = Ink(options.ascii_only)
        found = self.localisation
        behind = f", {found.beyond_front} of them from behind the first front" if found.beyond_front > 0 else ""
        yield ink.text(found.headline + behind)
        table = _table("weight", "value", *(("gradient loss", "forward impact") if found.scores else ()))
        for address, value, scores in ranked_suspects(found)[:MOST_SUSPECTS]:
            table.add_row(ink.text(_end_of(str(address))), f"{value:.6g}", *(f"{score:.4g}" for score in scores))
        yield table
        if len(found.suspects) > MOST_SUSPECTS:
            yield Text(f"and {len(found.suspects) - MOST_SUSPECTS:,} more")


def most_changed(accuracies: Sequence[Accuracy]) -> list[Accuracy]:
    """The classes or groups whose accuracy changed, the largest change first."""
    changed = [accuracy for accuracy in accuracies if accuracy.right_before != accuracy.right_after]
    return sorted(changed, key=lambda accuracy: -abs(accuracy.change))


def as_text(renderable: RenderableType, width: int = WIDTH) -> str:
    """Render a table as plain text, for `print(result)` and files."""
    console = SafeConsole(
        file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False
    )
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def _cells(part: PartEvidence) -> dict[str, str]:
    """The cells of one part, by their labels."""
    only_kept = part.kept is not None and part.kept.total == part.positives
    shown = f"{part.target_errors_before:,} → {part.target_errors_after:,}"
    return {
        "repaired": _rate(part.repair),
        **({} if only_kept else {"broken": _rate(part.breakage)}),
        **({} if part.kept is None else {"kept decisions changed": _rate(part.kept)}),
        f"fault, all {part.noun}s": f"{shown}, {p_value(part.sign_p)}",
        "other errors fixed": f"{part.others_fixed:,}",
        part.words.share: f"{percent_change(part.accuracy_before, part.accuracy_after)}, {p_value(part.mcnemar_p)}",
    }


def _class_line(classes: Sequence[Accuracy]) -> str:
    """Say in how many classes accuracy rises and falls, and where most."""
    classes = [one for one in classes if one.total]
    if not classes:
        return "No class has inputs here."
    rising = sorted((one for one in classes if one.change > 0), key=lambda one: -one.change)
    falling = sorted((one for one in classes if one.change < 0), key=lambda one: one.change)
    counts = (_count_classes(rising), _count_classes(falling))
    return f"Of {pluralise(len(classes), 'class', 'classes')}, accuracy rises in {counts[0]} and falls in {counts[1]}."


def _count_classes(ranked: Sequence[Accuracy]) -> str:
    """Count classes, and name the one that moved most: `3 (most in 7, by 4.0 points)`."""
    if not ranked:
        return "none"
    most = f"most in {ranked[0].name}" if len(ranked) > 1 else ranked[0].name
    return f"{len(ranked)} ({most}, by {100 * abs(ranked[0].change):.1f} points)"


def _objective(fairness: Fairness) -> str:
    low, high, before = (100 * one for one in (*fairness.after.interval, fairness.before.value))
    unit = "%" if fairness.objective.RISES else "points"
    return f"{before:.1f} → {format_value(fairness, fairness.after.value)}\n95 %: {low:.1f} – {high:.1f} {unit}"


def _with_interval(rate: Rate) -> str:
    low, high = rate.interval
    return f"{percent(rate.value)}\n{100 * low:.1f} – {100 * high:.1f}"


def _rate(rate: Rate) -> str:
    if not rate.total:
        return "no such inputs"
    low, high = rate.interval
    return f"{rate.count:,} of {rate.total:,}: {percent(rate.value)}\n95 %: {percent(low)} – {percent(high)}"


def _end_of(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]


def _table(name: str, *columns: str, justify: Literal["left", "right"] = "right") -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column(name, overflow="fold", max_width=LONGEST_NAME)
    for column in columns:
        table.add_column(column, justify=justify)
    return table


def scan_text(scan: Scan) -> str:
    """The causes and the mistakes of a scan as plain text."""
    return as_text(ScanTable(scan, scan.causes if scan.task.no_causes is None else None))
