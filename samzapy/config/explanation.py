"""The effective value of a key, its source, and stronger sources.

For `samzapy config explain`.

It looks at single keys and never at a whole configuration, so it has an answer also where that one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from samzapy.config.keys import KEYS, KINDS, REQUIRED, ConfigKey
from samzapy.config.lookup import PATTERN_SIGN, check_known, check_value, spec_of, stream_setting_keys
from samzapy.config.secrets import Text, is_secret
from samzapy.config.sources import Setting, Source, check_filled, in_force, variable_of
from samzapy.errors import ConfigError

_OF_STREAM = re.compile(r"systems\.(?P<system>[^.]+)\.streams\.(?P<stream>.+)\.(?P<setting>samza\.[a-z.]+)")
_OF_SYSTEM = re.compile(r"systems\.(?P<system>[^.]+)\.(?P<setting>samza\.[a-z.]+)")
_GLOB = re.compile(r"[*?]")
_PATTERN_OF_STREAMS: Final = f".streams.{PATTERN_SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One key.

    Attributes:
        value: the effective value; None where nothing is set and there is no default.
        origin: where it stands.
        given: every place that says something for the key, the weaker before the stronger.
        values: the possible values, in words.
        default: None where there is none; then the key is either required or simply not set.
        stronger: the sources that would override it.
        narrower: settings of single streams that count there instead.
        recorded: the value that the job was started with, if a coordinator stream was read.
        problem: why the value would be refused; empty if it would not be by itself.
    """

    key: str
    value: Text | None
    origin: Source
    place: str
    given: tuple[Setting, ...]
    values: str
    default: str | None
    required: bool
    meaning: str
    secret: bool
    of_process: bool
    stronger: tuple[str, ...]
    narrower: tuple[Setting, ...]
    recorded: Setting | None
    problem: str


def explain(
    key: str,
    settings: Sequence[Setting],
    recorded: Mapping[str, Setting] | None = None,
    commanded: Mapping[str, Setting] | None = None,
) -> Explanation:
    """Explain `key` under `settings`, which are ordered as `merge` gives them.

    A key that nothing reads has a problem and no meaning; the places where it is set are still shown.

    Args:
        recorded: the values on the coordinator stream, by key; None if the stream was not read.
        commanded: the values that requests or an earlier configuration set, by key. They are in force until the job
            is submitted with a value that differs from the one submitted before.
    """
    spec = spec_of(key) or ConfigKey(name=key, meaning="Nothing reads it.")
    own = tuple(setting for setting in settings if setting.key == key)
    default = _default(key, spec)
    effective, source, place = _effective(key, settings, recorded or {}, commanded or {})
    return Explanation(
        key=key,
        value=default if effective is None else effective.value,
        origin=source,
        place=place,
        given=own,
        values=values_of(spec),
        default=default,
        required=spec.default is REQUIRED,
        meaning=spec.meaning,
        secret=is_secret(key),
        of_process=spec.of_process,
        stronger=_stronger(key, source),
        narrower=_narrower(key, settings),
        recorded=None if recorded is None else recorded.get(key),
        problem=_problem(spec, key, effective),
    )


def _effective(
    key: str, settings: Sequence[Setting], recorded: Mapping[str, Setting], commanded: Mapping[str, Setting]
) -> tuple[Setting | None, Source, str]:
    """The setting in force, None for the default; its source, and its place as text."""
    own = [setting for setting in settings if setting.key == key]
    command, submitted = commanded.get(key), recorded.get(key)
    stays = not own or (submitted is not None and own[-1].value == submitted.value)
    if command is not None and stays and not (own and own[-1].value == command.value):
        return command, Source.STREAM, command.place
    strongest = _strongest(_keys_that_count(key, settings), settings)
    if strongest is not None:
        return (
            strongest,
            strongest.source,
            strongest.place if strongest.key == key else f"{strongest.key} ({strongest.place})",
        )
    if submitted is not None and all(setting.source is not Source.FILE for setting in settings):
        # Without a properties file, the value that the job was started with is in force.
        return submitted, Source.STREAM, submitted.place
    return None, Source.DEFAULT, "default"


def keys_to_explain(
    pattern: str | None, settings: Sequence[Setting], recorded: Mapping[str, Setting] | None = None
) -> tuple[str, ...]:
    """The keys that `pattern` names.

    A pattern is one key, or `job.container.*`; without one, all set keys are named.

    A family, named as the reference names it (`stores.<name>.msg.serde`), stands for those of it that are set.

    Raises:
        UnknownConfigKeyError: nothing reads the key; names the nearest one.
        ConfigError: a pattern that no key matches.
    """
    keys_set = {setting.key for setting in settings} | set(recorded or {})
    if pattern is None:
        return tuple(sorted(keys_set))
    if any(spec.name == pattern for spec in KEYS if "<" in spec.name):
        return tuple(sorted(key for key in keys_set if (spec := spec_of(key)) is not None and spec.name == pattern))
    # A pattern of streams is a part of one key.
    if not _GLOB.search(pattern) or _PATTERN_OF_STREAMS in pattern:
        check_known(pattern)
        return (pattern,)
    return _matching(pattern, keys_set)


def _matching(pattern: str, keys_set: Set[str]) -> tuple[str, ...]:
    """The known or set keys that the pattern matches.

    Raises ConfigError if there is none.
    """
    known = {spec.name for spec in KEYS if "<" not in spec.name} | keys_set
    keys = tuple(sorted(key for key in known if fnmatchcase(key, pattern)))
    if not keys:
        raise ConfigError(
            f"wanted a key, or a pattern that matches a key (job.container.*), found {pattern}, which matches none of "
            f"the {len(known)} known or set keys; docs/reference/configuration.md lists all keys"
        )
    return keys


def values_of(spec: ConfigKey) -> str:
    """The allowed values of a key, as text."""
    if spec.choices:
        return f"one of {', '.join(spec.choices)}"
    words = KINDS[spec.kind].replace("`", "")
    if spec.kind not in ("ms", "count", "bytes"):
        return words
    most = "" if spec.most == ConfigKey.__dataclass_fields__["most"].default else f" to {spec.most}"
    return f"{words}, from {spec.least}{most}"


def _keys_that_count(key: str, settings: Sequence[Setting]) -> tuple[str, ...]:
    """The key and its fallbacks, strongest first."""
    matched = _OF_STREAM.fullmatch(key)
    if matched is None or matched["stream"].startswith(PATTERN_SIGN):
        return (key,)
    stream = f"{matched['system']}.{matched['stream']}"
    return stream_setting_keys(stream, matched["setting"], in_force(settings))


def _strongest(keys: Sequence[str], settings: Sequence[Setting]) -> Setting | None:
    """The setting that is effective. An empty text means the next weaker one."""
    last = {setting.key: setting for setting in settings}
    return next((last[key] for key in keys if key in last and last[key].value != ""), None)


def _default(key: str, spec: ConfigKey) -> str | None:
    if isinstance(spec.default, str):
        return spec.default
    matched = _OF_STREAM.fullmatch(key)
    of_system = None if matched is None else spec_of(f"systems.{matched['system']}.{matched['setting']}")
    return of_system.default if of_system is not None and isinstance(of_system.default, str) else None


def _stronger(key: str, source: Source) -> tuple[str, ...]:
    variable = variable_of(key)
    ways = [
        (Source.FILE, f"{key}=... in the properties file"),
        *([] if variable is None else [(Source.ENVIRONMENT, f"the environment variable {variable}")]),
        (Source.SET, f"--set {key}=..."),
    ]
    ranks = list(Source)
    reached = Source.DEFAULT if source is Source.STREAM else source
    return tuple(way for rank, way in ways if ranks.index(rank) > ranks.index(reached))


def _narrower(key: str, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    matched = _OF_SYSTEM.fullmatch(key)
    if matched is None:
        return ()
    before, after = f"systems.{matched['system']}.streams.", f".{matched['setting']}"
    last = {setting.key: setting for setting in settings}
    return tuple(last[name] for name in sorted(last) if name.startswith(before) and name.endswith(after))


def _problem(spec: ConfigKey, key: str, setting: Setting | None) -> str:
    try:
        check_known(key)
        if setting is not None and setting.source is not Source.STREAM:
            check_filled(setting.key, setting.value)
        if setting is not None and isinstance(setting.value, str):
            check_value(spec, setting.key, setting.value)
    except ConfigError as error:
        return str(error)
    return f"wanted {key}, found nothing" if setting is None and spec.default is REQUIRED else ""
