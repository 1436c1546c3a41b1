"""Three-way merge of versions: tables by sample and column, files by path, episodes by id, tensors by entry.

The same merge serves branches and edits: an edit whose branch has moved is merged into the new head.
Implements "Merging" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from warpdata.edit.sample_diff import same_value
from warpdata.edit.table_merge import ColumnRules, MergeConflict, merge_table
from warpdata.edit.workspace import EditWorkspace
from warpdata.errors import BadInputError, ConflictError, MergeConflictError
from warpdata.kinds import Side, StageContext, payload_kind
from warpdata.primitives.progress import silent
from warpdata.repository.manifest import Binding, Manifest, ManifestEntry, Payload, TableEntry

__all__ = ["MergePolicy", "merge_versions"]

MergePolicy: TypeAlias = "Literal['fail', 'ours', 'theirs'] | Callable[[MergeConflict], Mapping[str, Any] | None]"
"""What happens to a conflict: the merge fails, one side wins, or a function returns the row to keep."""

_LISTED = 5
_MAX_CONFLICTS = 1000


@dataclass
class _Conflicts:
    """The policy, and the conflicts that it does not resolve."""

    policy: MergePolicy
    found: list[MergeConflict] = field(default_factory=list)
    items: dict[str, None] = field(default_factory=dict)
    """Files and episodes, in words."""

    def resolve(self, conflict: MergeConflict) -> Mapping[str, Any] | None:
        if callable(self.policy):
            return self.policy(conflict)
        if self.policy == "fail":
            self.found.append(conflict)
            if len(self.found) >= _MAX_CONFLICTS:
                self.check()
        if conflict.ours is None or conflict.theirs is None:
            return conflict.theirs if self.policy == "theirs" else conflict.ours
        contested = set(conflict.columns) if self.policy == "theirs" else set()
        base, ours, theirs = conflict.base or {}, conflict.ours, conflict.theirs
        only_theirs = {
            name
            for name, value in theirs.items()
            if same_value(ours.get(name), base.get(name)) and not same_value(value, base.get(name))
        }
        return {**ours, **{name: theirs[name] for name in contested | only_theirs}}

    def choose(self, item: str) -> Side:
        """Return the side to keep of a file or an episode. A function decides only about rows."""
        if self.policy == "ours" or self.policy == "theirs":
            return self.policy
        self.items[item] = None
        if len(self.items) >= _MAX_CONFLICTS:
            self.check()
        return "ours"

    def check(self) -> None:
        """Raise `MergeConflictError` with all conflicts, if there are some."""
        if not self.found and not self.items:
            return
        shown = [
            f"sample {conflict.sample_id} of table {conflict.table!r}"
            + (f" in {', '.join(conflict.columns)}" if conflict.columns else ", which one side deleted")
            for conflict in self.found[:_LISTED]
        ]
        shown += list(self.items)[: _LISTED - len(shown)]
        more = len(self.found) + len(self.items) - len(shown)
        raise MergeConflictError(
            f"both sides changed {'; '.join(shown)}{f' and {more} more' if more > 0 else ''}",
            conflicts=tuple(self.found),
            hint="Choose a side with policy='ours' or policy='theirs', or pass a function that returns the row.",
        )


def merge_versions(
    workspace: EditWorkspace,
    versions: tuple[Manifest, Manifest, Manifest],
    policy: MergePolicy = "fail",
    *,
    is_edit: bool = False,
    columns: Mapping[str, ColumnRules] | None = None,
) -> Manifest:
    """Return our version with the changes from the base to theirs. `versions` are the base, ours and theirs.

    Raise `MergeConflictError` with all conflicts. With `is_edit`, theirs is an edit of the base: its rows are others
    than ours, even if they are equal. `columns` are the rules for new columns, by table.
    """
    base, ours, theirs = versions
    if not callable(policy) and policy not in ("fail", "ours", "theirs"):
        raise BadInputError(f"policy={policy!r} is not 'fail', 'ours', 'theirs' or a function")
    sides, conflicts = _Sides(workspace, base, ours, theirs, is_edit, columns or {}), _Conflicts(policy)
    sections: dict[str, Any] = {}
    for section, entries in ours.sections().items():
        other = theirs.sections()[section]
        merged: dict[str, ManifestEntry] = {}
        for name in sorted(entries.keys() | other.keys()):
            kept = _merge_entry(sides, section, name, conflicts)
            if kept is not None:
                merged[name] = kept
        sections[section] = merged
    conflicts.check()
    bindings = _merge_bindings(base, ours, theirs, policy)
    kept_bindings = tuple(
        binding
        for binding in bindings
        if binding.table in sections["tables"] and binding.artifact in sections["artifacts"]
    )
    generations = {**theirs.generations, **ours.generations}
    return replace(ours, **sections, bindings=kept_bindings, generations=generations, metadata={})


@dataclass(frozen=True, slots=True)
class _Sides:
    """The three versions of a merge."""

    workspace: EditWorkspace
    base: Manifest
    ours: Manifest
    theirs: Manifest
    is_edit: bool
    columns: Mapping[str, ColumnRules]

    def column_rules(self, table: str) -> ColumnRules:
        """Return the rules for a table. A function that reads files which changed meanwhile is not called again."""
        rules = self.columns.get(table, ColumnRules())
        stale = {
            bound.column
            for bound in self.base.bindings
            if bound.table == table and self.ours.artifacts.get(bound.artifact) != self.base.artifacts[bound.artifact]
        }
        if any(new.reads(column) for new in rules.made for column in stale):
            return replace(rules, made=())
        return rules

    def entries(self, section: str, name: str) -> list[ManifestEntry | None]:
        return [side.sections()[section].get(name) for side in (self.base, self.ours, self.theirs)]

    def merge_items(self, section: str, name: str, conflicts: _Conflicts) -> ManifestEntry | None:
        """Merge the files of an artifact or the episodes of a set. None if they can only be merged as a whole."""
        kind = payload_kind(section)
        base, ours, theirs = (self.workspace.context(side) for side in (self.base, self.ours, self.theirs))
        context = StageContext(self.workspace.lazy_directory(), silent)
        staged = kind.merge_sides(
            name,
            (base, ours, theirs),
            lambda item: conflicts.choose(f"{kind.item} {item!r} of {kind.noun} {name!r}"),
            context,
        )
        return None if staged is None else self.workspace.add_payload(staged)


def _merge_entry(sides: _Sides, section: str, name: str, conflicts: _Conflicts) -> ManifestEntry | None:
    base, ours, theirs = sides.entries(section, name)
    if theirs == base:
        return ours
    if ours == base:
        return theirs
    if isinstance(base, TableEntry) and isinstance(ours, TableEntry) and isinstance(theirs, TableEntry):
        rules = sides.column_rules(name)
        return merge_table(sides.workspace, name, (base, ours, theirs), conflicts.resolve, rules)
    if ours == theirs and not (sides.is_edit and isinstance(ours, TableEntry)):
        return ours  # an edit that created a table would lose its rows here
    if isinstance(ours, Payload) and isinstance(theirs, Payload):
        merged = sides.merge_items(section, name, conflicts)
        if merged is not None:
            return merged
    if payload_kind(section).is_derived:
        return ours if theirs is not None else None
    if conflicts.policy == "ours":
        return ours
    if conflicts.policy == "theirs":
        return theirs
    raise ConflictError(
        f"both sides changed {name!r}",
        hint="Choose a side with policy='ours' or policy='theirs', or repeat one change.",
    )


def _merge_bindings(base: Manifest, ours: Manifest, theirs: Manifest, policy: MergePolicy) -> tuple[Binding, ...]:
    """Merge by table and column."""
    before, mine, other = (
        {(binding.table, binding.column): binding for binding in side.bindings} for side in (base, ours, theirs)
    )
    out = []
    for key in sorted(mine.keys() | other.keys()):
        if other.get(key) in (before.get(key), mine.get(key)):
            kept = mine.get(key)
        elif mine.get(key) == before.get(key) or policy == "theirs":
            kept = other.get(key)
        elif policy == "ours":
            kept = mine.get(key)
        else:
            raise ConflictError(f"both sides changed the binding of column {key[1]!r} of table {key[0]!r}")
        if kept is not None:
            out.append(kept)
    return tuple(out)
