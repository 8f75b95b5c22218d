"""Compare models of an index: to add one, to take one away, to see that a given one is the one that is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from re import fullmatch
from typing import TYPE_CHECKING

from crosscut.errors import CrosscutError
from crosscut.index import manifest as names
from crosscut.index.manifest import COMPARE_NAME, Compared, Manifest, Model
from crosscut.index.steps import compute_compared
from crosscut.index.store import Store
from crosscut.search.pipeline import RESERVED
from crosscut.search.problem import FIRST_STAGES

if TYPE_CHECKING:
    from crosscut.compare.base import Comparer

# A query's nearest items that the default search has compared, unless told: as many as CMC takes in one pass, or
# on a CPU what takes it a moment.
NEAREST, NEAREST_ON_CPU = 16_384, 1_024


def add_compare(
    store: Store,
    comparer: Comparer,
    *,
    name: str | None = None,
    signal: int | None = None,
    by_name: bool = True,
    progress: bool = False,
) -> str:
    """Keep the vectors that a compare model makes of the items, and make those that are missing; its name here.

    name: by which pipelines and `first` call it; unless given, what it has already, or its kind. signal: to how
    many of a query's nearest items the default search applies it, as one more signal; 0: to none. Unless given
    that is 16,384 (1,024 on a CPU) for the first model with a fixed number of rows per item, and 0 for others.
    """
    check_signal(signal)
    with store.changing() as manifest:
        ((name, _),) = labelled(manifest.compare, [(name, comparer)]).items()
        if name in manifest.compare:
            entry = manifest.compare[name]
            entry = replace(entry, signal=entry.signal if signal is None else signal)
        else:
            store.files.remove(names.compare_folder(name))  # what another model of that name may have left
            signal = _usual_signal(manifest, comparer) if signal is None else signal
            entry = Compared(Model.of(comparer), comparer.kind, comparer.width, signal, by_name)
        if manifest.compare.get(name) != entry:
            store.update(compare={**manifest.compare, name: entry})
        compute_compared(store, name, comparer, progress)
        if not entry.complete:
            store.update(compare={**manifest.compare, name: replace(entry, complete=True)})
    return name


def labelled(there: Mapping[str, Compared], given: Iterable[tuple[str | None, Comparer]]) -> dict[str, Comparer]:
    """Compare models by the names that they have in an index, or will get; the name of another is an error."""
    named: dict[str, Comparer] = {}
    for name, comparer in given:
        if name is None:
            fitting = [label for label, one in there.items() if one.fits(comparer)]
            name = next(iter([*fitting, comparer.kind]))
        _check_name(name)
        if name in there:
            check_same(name, there[name], comparer)
        other = named.get(name, comparer)
        if other is not comparer and (not comparer.digest() or other.digest() != comparer.digest()):
            raise CrosscutError(
                f"two compare models would be called {name!r}, {other.name} and {comparer.name}: give one of "
                f"them a name of its own (`--compare NAME={comparer.name}`, compare={{'NAME': …}})"
            )
        named[name] = comparer
    return named


def check_signal(signal: int | None) -> None:
    """
    >>> check_signal(-1)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: signal must be a whole number of at least 0, but is -1
    """
    if signal is not None and (isinstance(signal, bool) or not isinstance(signal, int) or signal < 0):
        raise CrosscutError(f"signal must be a whole number of at least 0, but is {signal!r}")


def remove_compare(store: Store, *removed: str) -> None:
    """Take the vectors of compare models out of the index."""
    with store.changing() as manifest:
        for name in removed:
            if name not in manifest.compare:
                raise _unknown(manifest, name)
        store.update(compare={name: one for name, one in manifest.compare.items() if name not in removed})
        for name in removed:
            store.files.remove(names.compare_folder(name))


def check_comparers(manifest: Manifest, comparers: Mapping[str, Comparer]) -> dict[str, Comparer]:
    """The models of all finished vectors; one that is missing or another is an error."""
    for name in comparers:
        if name not in manifest.compare:
            raise _unknown(manifest, name)
        check_same(name, manifest.compare[name], comparers[name])
    finished = [name for name, one in manifest.compare.items() if one.complete]
    for name in finished:
        if name not in comparers:
            raise CrosscutError(
                f"the index has vectors of the compare model {name!r}, {manifest.compare[name].model}: "
                "give it too, so that new items get theirs"
            )
    return {name: comparers[name] for name in finished}


def check_same(name: str, entry: Compared, comparer: Comparer) -> None:
    if not entry.fits(comparer):
        now = f"the {comparer.kind} model {Model.of(comparer)} with {comparer.width}"
        raise CrosscutError(
            f"the vectors {name!r} of this index were made by the {entry.kind} model {entry.model} and have "
            f"{entry.width} dimensions, but this is {now}: "
            "use the same, add this one under another name, or take the old one out first "
            f"(Index.remove_compare({name!r}), `crosscut index --add --remove-compare {name}`)"
        )


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not fullmatch(COMPARE_NAME, name):
        raise CrosscutError(f"a compare model is named with a-z, 0-9 and hyphens, such as cmc-2, not {name!r}")
    if name in (*RESERVED, *FIRST_STAGES):
        raise CrosscutError(f"{name!r} is the name of another stage: call the compare model something else")


def _usual_signal(manifest: Manifest, comparer: Comparer) -> int:
    if comparer.per_item is None or any(one.signal for one in manifest.compare.values()):
        return 0
    return NEAREST_ON_CPU if getattr(comparer, "device", None) == "cpu" else NEAREST


def _unknown(manifest: Manifest, name: str) -> CrosscutError:
    there = ", ".join(manifest.compare) or "none"
    return CrosscutError(f"the index has no compare model {name!r}; it has: {there}")
