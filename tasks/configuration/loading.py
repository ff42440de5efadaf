"""Reading a configuration file: every problem at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pgsr_core.errors import PgsrError
from tasks.configuration.model import Configuration
from tasks.configuration.names import refused_names

LARGEST_FILE = 1_000_000
DEEPEST_NESTING = 20
Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a configuration, and where."""

    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line is not None else "file"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigurationError(PgsrError):
    """A configuration cannot be used; holds every problem that was found."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.path = path
        self.problems = tuple(sorted(problems, key=lambda p: (p.line or 0, p.key)))
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{path.name} cannot be used:\n{listed}\nRemedy: correct these lines.")


@dataclass(frozen=True)
class LoadedConfiguration:
    """A valid configuration, the file it came from, and the line of each key."""

    configuration: Configuration
    path: Path
    lines: dict[Location, int]

    @property
    def folder(self) -> Path:
        """The folder that relative paths are relative to."""
        return self.path.parent

    def problem(self, location: Location, message: str) -> Problem:
        """A problem at a key, with the line of the key or of the nearest one around it."""
        return Problem(".".join(map(str, location)), message, _line_of(location, self.lines))


class _ExactLoader(yaml.SafeLoader):
    """Plain data only: text, true, false, null and decimal integers.

    Decimals and dates stay text, since 0.1 must not become a binary float; so do octal (010),
    sexagesimal (1:30) and other integers that people and YAML read differently.
    """


_ExactLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag in {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"}
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_ExactLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z"), list("-0123456789")
)


def load_configuration(path: Path) -> LoadedConfiguration:
    """Read and validate a product's configuration.

    Raises:
        ConfigurationError: with everything that is wrong at once.
    """
    path = path.absolute()
    node = _compose(path)
    problems: list[Problem] = []
    lines: dict[Location, int] = {}
    data = _plain(node, (), lines, problems)
    if not isinstance(data, dict):
        raise ConfigurationError(path, [Problem("", "must be a mapping of keys to values", 1)])
    try:
        configuration = Configuration.model_validate(data)
    except ValidationError as error:
        problems += [_problem(details, lines) for details in error.errors(include_url=False)]
        raise ConfigurationError(path, _unique(problems)) from None
    problems += [Problem(key, why, lines.get((key,))) for key, why in refused_names(configuration)]
    if problems:
        raise ConfigurationError(path, problems)
    return LoadedConfiguration(configuration, path, lines)


def _compose(path: Path) -> yaml.Node:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise ConfigurationError(path, [Problem("", f"cannot be read: {reason}")]) from None
    if len(raw) > LARGEST_FILE:
        too_long = f"is larger than {LARGEST_FILE} bytes"
        raise ConfigurationError(path, [Problem("", too_long)])
    try:
        text = raw.decode()
        refused = _refused_construct(text)
        if refused is not None:
            raise ConfigurationError(path, [refused])
        node: yaml.Node | None = yaml.compose(text, Loader=_ExactLoader)
    except UnicodeDecodeError:
        raise ConfigurationError(path, [Problem("", "is not UTF-8 text")]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or "a character that YAML does not allow"
        line = mark.line + 1 if mark is not None else None
        raise ConfigurationError(path, [Problem("", f"not valid YAML: {reason}", line)]) from None
    except (ValueError, OverflowError):
        # The YAML reader lets these through for numbers in escapes and directives.
        message = "not valid YAML: a number in it is out of range"
        raise ConfigurationError(path, [Problem("", message)]) from None
    if node is None:
        raise ConfigurationError(path, [Problem("", "is empty", 1)])
    return node


def _refused_construct(text: str) -> Problem | None:
    """Find what YAML allows and no configuration needs, before anything is built from it.

    An alias can make a short file expand without bound, a tag names what to construct, and
    deep nesting makes readers recurse.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return Problem("", "anchors and aliases are not allowed", line)
        if getattr(event, "tag", None):
            return Problem("", "tags are not allowed", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST_NESTING:
            return Problem("", "is nested too deeply", line)
    return None


def _plain(
    node: yaml.Node, location: Location, lines: dict[Location, int], problems: list[Problem]
) -> Any:
    """Turn a node into plain data and note the line of every key."""
    if isinstance(node, yaml.MappingNode):
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            here = (*location, key)
            line = key_node.start_mark.line + 1
            if here in lines:
                message = f"stands twice; first on line {lines[here]}"
                problems.append(Problem(".".join(map(str, here)), message, line))
            lines[here] = line
            result[key] = _plain(value_node, here, lines, problems)
        return result
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            lines[(*location, index)] = item.start_mark.line + 1
            items.append(_plain(item, (*location, index), lines, problems))
        return items
    # Constructed by a loader of its own: the tag was resolved when the file was composed.
    return _ExactLoader("").construct_object(node)


def _problem(details: Any, lines: dict[Location, int]) -> Problem:
    location: Location = ()
    for part in details["loc"]:
        if (*location, part) in lines or not _is_union_tag(part):
            location = (*location, part)
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "extra_forbidden":
        message = "is not a key of a configuration"
    elif details["type"] == "missing":
        message = "is missing"
    key = ".".join(map(str, location))
    return Problem(key, message, _line_of(location, lines))


def _is_union_tag(part: str | int) -> bool:
    """Whether a part of a location names a branch of a union instead of a key of the file."""
    return isinstance(part, str) and ("[" in part or part in {"str", "LevelColumns"})


def _line_of(location: Location, lines: dict[Location, int]) -> int | None:
    while location:
        if location in lines:
            return lines[location]
        location = location[:-1]
    return None


def _unique(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))
