"""Layers: host software between the workload and the device."""

import json
from collections.abc import Mapping
from typing import TypedDict

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.lists import Names, listed_names, once, several

#: Value of a setting; a size is written as text, such as `256MiB`.
Setting = str | int | float | bool


class LayerSetting(TypedDict):
    """A setting of a layer; its default is None if it is computed from other settings."""

    name: str
    default: Setting | None
    unit: str
    about: str


class LayerKind(TypedDict):
    """A kind of layer, with its settings."""

    name: str
    about: str
    settings: list[LayerSetting]


def layers() -> list[LayerKind]:
    """List the available layers: `name`, `about` and `settings`.

    Each setting has `name`, `default`, `unit` and `about`; one without default (`None`) is computed from the
    device or from other settings, as `about` explains.

    >>> [layer["name"] for layer in layers()]
    ['pass-through', 'advil', 'ressd', 'pair', 'nvm-buffer', 'journal', 'lfs']
    """
    kinds: list[LayerKind] = _core.layer_kinds()
    return kinds


def stacks(texts: Names) -> list[list[str]]:
    """Parse stacks of layers, without repetitions: names joined by `+`, top layer first; `none` for no layer.

    A single text may contain several stacks, separated by commas.

    Raises:
        ConfigError: a name is missing.

    >>> stacks(["none", "pass-through+journal:delta", "none"]), stacks("none,advil")
    ([[], ['pass-through', 'journal:delta']], [[], ['advil']])
    """
    parsed: list[list[str]] = []
    for text in listed_names(texts, "layers"):
        names = [name.strip() for name in text.split("+")]
        if "" in names or (len(names) > 1 and "none" in names):
            hint = "put + between names and commas between stacks, for example `none,journal:delta,pass-through+advil`"
            raise ConfigError(f"`{text}` is not a stack of layers", field="layers", hint=hint)
        parsed.append([] if names == ["none"] else names)
    return once(parsed)


def settings_of(names: Names, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Select the settings that belong to the layers of one stack from the settings of several stacks.

    >>> settings_of(["journal:delta"], {"journal.log": "8MB", "advil.hot": "none"})
    {'journal.log': '8MB'}
    """
    kinds = [name.partition(":")[0] for name in several(names)]
    return {key: value for key, value in settings.items() if key.partition(".")[0] in kinds}


def refuse_lines(settings: Mapping[str, Setting]) -> None:
    r"""Reject values of several lines, of which only the first line would be used.

    Raises:
        ConfigError: a value has several lines.

    >>> refuse_lines({"gc.policy": "fifo\ncache.lies=flush"})
    Traceback (most recent call last):
    ...
    emmclab.errors.ConfigError: the value of `gc.policy` has several lines
    """
    for key, value in settings.items():
        if {"\n", "\r"} & {*key, *str(value)}:
            name = key.replace("\r", "\n").partition("\n")[0]
            raise ConfigError(
                f"the value of `{name}` has several lines",
                field=name,
                hint="give each setting in a separate option: `--set KEY=VALUE --set OTHER=VALUE`",
            )


def stack(names: Names, settings: Mapping[str, Setting]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Combine layers by name with their settings, given as `{"advil.reserved": "256MiB"}`.

    A name may contain the layer's mode, as `journal:delta` does for `journal` with `mode` = `delta`.

    Raises:
        ConfigError: there is no such layer, or a setting belongs to no layer of the stack.

    >>> stack(["advil"], {"advil.hot": "none"})
    [('advil', [('hot', 'none')])]
    >>> stack(["journal:delta"], {"journal.log": "8MB"})
    [('journal', [('mode', 'delta'), ('log', '8MB')])]
    """
    refuse_lines(settings)
    names = several(names)
    available = layers() if names else []
    settings_of_kind = {layer["name"]: {setting["name"] for setting in layer["settings"]} for layer in available}
    kinds = [name.partition(":")[0] for name in names]
    for name, kind in zip(names, kinds, strict=True):
        if kind not in settings_of_kind:
            hint = f"choose from the layers: {', '.join(settings_of_kind)}"
            raise ConfigError(f"there is no layer `{kind}`", field="layers", hint=hint)
        if ":" in name and "mode" not in settings_of_kind[kind]:
            hint = f"write `{kind}`; its settings are given as {kind}.NAME=VALUE"
            raise ConfigError(f"the layer `{kind}` has no modes", field="layers", hint=hint)
    for key in settings:
        if key.partition(".")[0] not in kinds:
            raise ConfigError(
                f"no layer of this run has the setting `{key}`",
                field=key,
                hint=f"the layers are: {', '.join(names) or 'none'}",
            )

    def with_settings(name: str) -> tuple[str, list[tuple[str, str]]]:
        kind, _, mode = name.partition(":")
        pairs = [
            (key.removeprefix(f"{kind}."), value if isinstance(value, str) else json.dumps(value))
            for key, value in settings.items()
            if key.startswith(f"{kind}.")
        ]
        return kind, [("mode", mode), *pairs] if mode else pairs

    return [with_settings(name) for name in names]
