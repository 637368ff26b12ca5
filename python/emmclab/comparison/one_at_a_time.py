"""Finds the differences that changed a result: simulates the first configuration with each difference alone."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple

from emmclab.comparison.result_difference import RunDifference, figure, value_text
from emmclab.errors import ConfigError
from emmclab.simulation.result_fields import shown_fields
from emmclab.simulation.stored_result import Recipe, StoredResult, recipe_of, with_settings

#: Figures in which two runs are compared.
MAIN = shown_fields(
    (
        "response.mean_response_ms",
        "response.p99_ms",
        "response.read.mean_ms",
        "response.write.mean_ms",
        "durable.mean_ms",
        "durable.p99_ms",
        "write_amplification.waf",
        "run.simulated_s",
    )
)
#: Settings whose value determines which other settings exist in their group.
_DECIDES = ("policy", "scheme")

#: Matches a setting in an error message, and captures the group of the setting.
_GROUP = re.compile(r"`([a-z_]+)\.[a-z_.0-9]+`")

#: Callback before each run: number of the run (from 1), number of all runs, and the change as text.
RunProgress = Callable[[int, int, str], None]


class RecipeChange(NamedTuple):
    """One difference between two configurations, and a function that applies it to the first."""

    kind: str
    label: str
    first: str
    second: str
    apply: Callable[[Recipe], Recipe]
    #: Device settings that the change sets, by key.
    values: Mapping[str, Any] = {}


class ChangeEffect(NamedTuple):
    """Effect of a single difference on the main figures."""

    kind: str
    label: str
    first: str
    second: str
    #: Main figures of a run with only this change, by path of the figure; empty if this change alone is impossible.
    figures: dict[str, float | None]
    #: Share of the difference between both runs that this change alone causes, in percent, by path of the figure; None
    #: if the runs do not differ or a value is not known.
    share_pct: dict[str, float | None]
    #: Reason why a run with this change alone is impossible; empty if it is possible.
    reason: str = ""


class OneAtATime(NamedTuple):
    """Main figures of simulations: of both configurations, and of the first one with each difference alone."""

    first: dict[str, float | None]
    second: dict[str, float | None]
    moved: list[ChangeEffect]
    #: By path of a figure: percentage of the difference that is not explained by applying the changes one at a time.
    together_pct: dict[str, float | None]
    #: Figures in which a stored result differs from a repetition of its run.
    not_repeated: list[str]

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return {**self._asdict(), "moved": [row._asdict() for row in self.moved]}


def one_at_a_time(
    first: StoredResult,
    second: StoredResult,
    differences: Sequence[RunDifference],
    *,
    images: str | PathLike[str] | None = None,
    progress: RunProgress | None = None,
) -> OneAtATime:
    """Simulate two results again, and the first configuration with each of their differences alone.

    Raises:
        ConfigError: a result does not contain the inputs of its run.
        InputError: a trace no longer exists or has changed.
    """
    recipes = recipe_of(first), recipe_of(second)
    changes = list(_changes(differences, *recipes))
    total = 2 + len(changes)

    def run(number: int, words: str, recipe: Recipe) -> dict[str, float | None]:
        if progress is not None:
            progress(number, total, words)
        result = recipe.run(images=images)
        return {field.path: _main(result, field.path) for field in MAIN}

    ends = run(1, first.name, recipes[0]), run(2, second.name, recipes[1])

    def move(number: int, change: RecipeChange) -> ChangeEffect:
        figures: dict[str, float | None] = {}
        reason = ""
        try:
            figures = run(number, change.label, change.apply(recipes[0]))
        except ConfigError as error:
            reason = str(error)
        shares = {path: _share(ends[0][path], ends[1][path], value) for path, value in figures.items()}
        return ChangeEffect(*change[:4], figures, shares, reason)

    moved = [move(number, change) for number, change in enumerate(changes, 3)]
    moved = _with_groups(changes, moved, lambda change: move(total, change))
    together: dict[str, float | None] = {}
    for path in (field.path for field in MAIN):
        if _share(ends[0][path], ends[1][path], ends[1][path]) is None:
            together[path] = None
        else:
            remainder = 100.0 - sum(row.share_pct.get(path) or 0.0 for row in moved)
            # A remainder below 1e-9 is a rounding error.
            together[path] = 0.0 if abs(remainder) < 1e-9 else remainder
    return OneAtATime(*ends, moved, together, _not_repeated((first, second), ends))


def _with_groups(
    changes: Sequence[RecipeChange], moved: list[ChangeEffect], move: Callable[[RecipeChange], ChangeEffect]
) -> list[ChangeEffect]:
    """Apply several settings together if some of them are impossible alone.

    First the settings of one group (such as `cache`) are applied together. If this is impossible, the settings of all
    rejected groups, and of the groups that the error messages name, are applied together. The last attempt applies all
    settings together.
    """

    def group_of(label: str) -> str:
        return label.partition(".")[0]

    def refused(*, with_named: bool = False) -> list[str]:
        rows = [row for row in moved if row.reason and row.kind == "setting"]
        groups = [group for row in rows for group in _GROUP.findall(row.reason)] if with_named else []
        return list(dict.fromkeys([*(group_of(row.label) for row in rows), *groups]))

    def attempt(groups: Sequence[str], moved: list[ChangeEffect]) -> list[ChangeEffect]:
        members = [change for change in changes if change.kind == "setting" and group_of(change.label) in groups]
        if len(members) < 2:
            return moved
        combined = move(_together(members))
        if combined.reason:
            return moved
        other_rows = [row for row in moved if row.kind != "setting" or group_of(row.label) not in groups]
        return [*other_rows, combined]

    for group in refused():
        moved = attempt([group], moved)
    groups = refused(with_named=True)
    if groups:
        moved = attempt(groups, moved)
    if refused():
        moved = attempt([group_of(change.label) for change in changes], moved)
    return moved


def _together(changes: Sequence[RecipeChange]) -> RecipeChange:
    """Combine several settings into one change."""

    def apply(recipe: Recipe) -> Recipe:
        values = {key: value for change in changes for key, value in change.values.items()}
        return replace(recipe, device=with_settings(recipe.device, values))

    groups = dict.fromkeys(f"{change.label.partition('.')[0]}.*" for change in changes)
    return RecipeChange("setting", f"{', '.join(groups)} ({len(changes)} settings)", "A", "B", apply)


def _main(fields: Mapping[str, Any], path: str) -> float | None:
    """Return one of the main figures by its path; None if the run had no requests that the figure measures."""
    parts = path.split(".")
    if parts[0] == "response" and len(parts) == 3 and not figure(fields, f"requests.{parts[1]}"):
        return None
    if parts[0] == "durable" and not figure(fields, "durable.requests"):
        return None
    return figure(fields, path)


def _share(first: float | None, second: float | None, value: float | None) -> float | None:
    if first is None or second is None or value is None or first == second:
        return None
    # Adding 0.0 turns -0.0 into 0.0.
    return 100 * (value - first) / (second - first) + 0.0


def _not_repeated(stored: Sequence[StoredResult], repeated: Sequence[Mapping[str, float | None]]) -> list[str]:
    texts = []
    for result, figures in zip(stored, repeated, strict=True):
        if result.kind != "simulation":
            continue
        for field in MAIN:
            stored_value, value = _main(result.fields, field.path), figures[field.path]
            if stored_value != value:
                version = result.provenance.get("version")
                name = field.name
                texts.append(
                    f"{result.place} (version {version}) has {name} {_number(stored_value)}, this version gives "
                    f"{_number(value)}"
                )
    return texts


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.6g}"


def _changes(differences: Sequence[RunDifference], first: Recipe, second: Recipe) -> Iterator[RecipeChange]:
    """Yield the changes that can be applied alone; settings that exist only under a policy change together with it."""
    kinds = {difference.kind for difference in differences}
    if "input" in kinds or "reading" in kinds:
        (difference, *_) = [difference for difference in differences if difference.kind in ("input", "reading")]
        keys = [difference.key for difference in differences if difference.kind == "reading"]
        label = "traces" if difference.kind == "input" else f"reading: {', '.join(keys)}"
        yield RecipeChange(
            difference.kind,
            label,
            value_text(difference.first),
            value_text(difference.second),
            lambda recipe: replace(recipe, traces=second.traces, aged_by=second.aged_by),
        )
    for difference in differences:
        if difference.kind == "option":
            yield _option(difference, second)
    yield from _layers([difference for difference in differences if difference.kind == "layers"], second)
    if any(difference.kind == "second device" for difference in differences):
        names = [recipe.second.name if recipe.second else "none" for recipe in (first, second)]
        yield RecipeChange(
            "second device", "second device", names[0], names[1], lambda recipe: replace(recipe, second=second.second)
        )
    yield from _settings([difference for difference in differences if difference.kind == "setting"])


def _option(difference: RunDifference, second: Recipe) -> RecipeChange:
    def apply(recipe: Recipe) -> Recipe:
        aged_by = second.aged_by if difference.key == "precondition" else recipe.aged_by
        return replace(recipe, options={**recipe.options, difference.key: difference.second}, aged_by=aged_by)

    return RecipeChange("option", difference.key, value_text(difference.first), value_text(difference.second), apply)


def _layers(differences: Sequence[RunDifference], second: Recipe) -> Iterator[RecipeChange]:
    """Yield the change to the second run's layers; if both runs have the same layers, changes of layer settings."""
    stack = next((difference for difference in differences if difference.key == "layers"), None)
    if stack is not None:
        options = {name: second.options.get(name) for name in ("layers", "layer_settings")}
        names = ["+".join(layers or ["none"]) for layers in (stack.first, stack.second)]
        yield RecipeChange(
            "layers",
            "layers",
            names[0],
            names[1],
            lambda recipe: replace(
                recipe, options={**recipe.options, **options}, second=recipe.second or second.second
            ),
        )
        return
    for difference in differences:

        def apply(recipe: Recipe, difference: RunDifference = difference) -> Recipe:
            settings = {**(recipe.options.get("layer_settings") or {}), difference.key: difference.second}
            remaining = {key: value for key, value in settings.items() if value is not None}
            return replace(recipe, options={**recipe.options, "layer_settings": remaining})

        yield RecipeChange("layers", difference.key, value_text(difference.first), value_text(difference.second), apply)


def _settings(rows: Sequence[RunDifference]) -> Iterator[RecipeChange]:
    for setting in rows:
        group, _, name = setting.key.rpartition(".")
        decided = any(other.key in {f"{group}.{word}" for word in _DECIDES} for other in rows)
        if decided and (setting.first is None or setting.second is None):
            continue
        values = {setting.key: setting.second} if setting.second is not None else {}
        if name in _DECIDES:
            values |= {
                other.key: other.second for other in rows if other.key.startswith(f"{group}.") and other.first is None
            }

        def apply(recipe: Recipe, setting: RunDifference = setting, values: Mapping[str, Any] = values) -> Recipe:
            if not values:
                raise ConfigError(f"`{setting.key}` cannot be changed alone: the second result lacks it")
            return replace(recipe, device=with_settings(recipe.device, values))

        yield RecipeChange("setting", setting.key, value_text(setting.first), value_text(setting.second), apply, values)
