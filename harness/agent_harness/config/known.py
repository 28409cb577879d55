"""Which keys exist, and what to say about one that does not."""

import difflib
import re
from collections.abc import Iterator
from functools import reduce
from typing import TypeAlias, get_args, get_origin

from agent_harness.config.shape import Config, Section, dotted
from agent_harness.errors import ConfigError

Path_: TypeAlias = tuple[str, ...]

KEY_WORD = re.compile(
    r"(^|[_-])(api[_-]?key|key|token|password|passwd|secret|credentials?|authorization)$", re.IGNORECASE
)
"""Names that a credential would be given."""


def spelled(key: Path_) -> str:
    """A key's dotted name."""
    return reduce(dotted, key, "")


def walked(model: type[Section], above: Path_ = ()) -> Iterator[tuple[Path_, bool]]:
    """Every key there is, and whether it is a table; `NAME` stands for the user's own names."""
    for field, info in model.model_fields.items():
        kinds = (info.annotation, *get_args(info.annotation))
        inner = next((one for one in kinds if isinstance(one, type) and issubclass(one, Section)), None)
        key = (*above, field)
        yield key, inner is not None
        if inner is not None and get_origin(info.annotation) is dict:
            key = (*key, NAME)
            yield key, True
        if inner is not None:
            yield from walked(inner, key)


NAME = "NAME"
KNOWN = dict(walked(Config))


def general(key: Path_) -> Path_:
    """A key with `NAME` for a name of the user's own."""
    return (key[0], NAME, *key[2:]) if (*key[:1], NAME) in KNOWN and len(key) > 1 else key


def tables(key: Path_) -> bool:
    """Whether a key is a table of the configuration."""
    return KNOWN.get(general(key), False)


def unknown(key: Path_, where: str) -> ConfigError:
    """What is said of a key that no section has. Its value is never repeated: it may be a secret."""
    if KEY_WORD.search(key[-1]):
        return ConfigError(
            f"{where}: {spelled(key)} is refused",
            why="keys are never in the configuration",
            next='put the key into an environment variable and name it: api_key_env = "NAME" in [routes.<name>]',
        )
    return ConfigError(f"{where}: unknown key {spelled(key)}", next=f"did you mean {nearest(key)}?")


def nearest(key: Path_) -> str:
    """The known key that is most like an unknown one: a sibling, or the same name in another section."""
    if same := next((one for one in KNOWN if one[-1] == key[-1]), None):
        return spelled(same)
    siblings = [one[-1] for one in KNOWN if one[:-1] == general(key)[:-1]]
    if close := difflib.get_close_matches(key[-1], siblings, n=1, cutoff=0.6):
        return spelled((*key[:-1], close[0]))
    return difflib.get_close_matches(spelled(key), map(spelled, KNOWN), n=1, cutoff=0.0)[0]
