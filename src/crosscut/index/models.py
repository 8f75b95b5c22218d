"""The models of an index: those that were given, or those that it names, loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crosscut.compare import Comparer, as_comparer
from crosscut.encoders import Encoder, ExportedEncoder, ModelEncoder, as_encoder
from crosscut.errors import CrosscutError
from crosscut.index.compared import add_compare, check_same, check_signal, labelled, remove_compare
from crosscut.index.manifest import Compared, Manifest, Model
from crosscut.index.store import Store
from crosscut.scorers import PredictScorer, RemoteScorer, Scorer, TransformerScorer, scorer_again
from crosscut.scorers.exported import ExportedScorer


class Models:
    """Scorer, encoder and compare models of a store; `comparers` are by their names in it."""

    def __init__(
        self,
        store: Store,
        scorer: Scorer | None = None,
        encoder: Encoder | None = None,
        comparers: Mapping[str, Comparer] | None = None,
    ) -> None:
        self._store, self._scorer, self._encoder = store, scorer, encoder
        self._comparers = dict(comparers or {})

    @property
    def scorer(self) -> Scorer:
        if self._scorer is None:
            manifest = self._store.manifest
            assert manifest.scorer is not None
            self._scorer = self._load(
                "scorer",
                manifest.scorer,
                "scorer" in manifest.extra.get("by_name", ["scorer"]),
                lambda name: scorer_again(name, manifest.scorer_options),
            )
            if isinstance(self._scorer, RemoteScorer):
                self._scorer.withhold_key()
            check_model("scorer", manifest.scorer, self._scorer, manifest.scorer_options)
        return self._scorer

    @property
    def encoder(self) -> Encoder | None:
        """None if the index was built without."""
        manifest = self._store.manifest
        if self._encoder is None and manifest.encoder is not None:
            by_name = "encoder" in manifest.extra.get("by_name", ["encoder"])
            self._encoder = self._load("encoder", manifest.encoder, by_name, as_encoder)
            check_model("encoder", manifest.encoder, self._encoder, {})
        return self._encoder

    def comparer(self, name: str) -> Comparer:
        """The compare model of that name in the index."""
        entry, model = self._store.manifest.compare[name], self._comparers.get(name)
        if model is None or (entry.by_name and not entry.fits(model)):  # another process may have replaced it
            model = self._load("compare model", entry.model, entry.by_name, as_comparer)
        check_same(name, entry, model)
        self._comparers[name] = model
        return model

    def comparers(self) -> dict[str, Comparer]:
        """All whose vectors are complete."""
        return {name: self.comparer(name) for name, one in self._store.manifest.compare.items() if one.complete}

    def keep(self, comparers: Mapping[str, Comparer]) -> None:
        """Use these from now on."""
        self._comparers.update(comparers)

    def _load(self, kind: str, built_with: Model, by_name: bool, make: Any) -> Any:
        keyword = "compare" if kind == "compare model" else kind
        if not by_name:
            raise CrosscutError(
                f"the index was built with {kind} {built_with.name!r}, an object of the program that built it: "
                f"give it as {keyword}="
            )
        try:
            return make(built_with.name)
        except CrosscutError as error:
            raise CrosscutError(
                f"the index was built with {kind} {built_with.name!r}, which cannot be loaded by that name "
                f"({error}): give it as {keyword}="
            ) from error


class Given(NamedTuple):
    """A compare model as a caller gave it. `by_name`: its name may find it again."""

    name: str | None
    comparer: Comparer
    by_name: bool


def given_comparers(compare: Any) -> list[Given]:
    """Compare models of what a caller has: one, a list of them or of (name, model), or a mapping from names.

    >>> given_comparers(None), given_comparers(3)
    Traceback (most recent call last):
    crosscut.errors.CrosscutError: compare is a int: give the folder of a compare model, a list of them, or a ...
    """
    if compare is None:
        return []
    if isinstance(compare, str | Path | Comparer):
        compare = [compare]
    if not isinstance(compare, Iterable):
        raise CrosscutError(
            f"compare is a {type(compare).__name__}: give the folder of a compare model, a list of them, or a "
            "mapping from names to them"
        )
    pairs = compare.items() if isinstance(compare, Mapping) else compare
    given = []
    for one in pairs:
        name, model = one if isinstance(one, tuple) else (None, one)
        comparer = as_comparer(model)
        by_name = isinstance(model, str | Path) or Path(comparer.name).is_dir()
        given.append(Given(name, comparer, by_name and comparer.digest() != ""))
    return given


def check_added(there: Mapping[str, Compared], given: Sequence[Given], signal: int | None) -> None:
    """See that models can be added to those that are there, before anything is done that costs."""
    labelled(there, [(name, comparer) for name, comparer, _ in given])
    check_signal(signal)


def add_comparers(
    store: Store, given: Sequence[Given], signal: int | None, progress: bool, overwrite: bool = False
) -> dict[str, Comparer]:
    """Add compare models to an index; they come by the names that they have there. `signal`: of the first.

    `overwrite`: unfinished vectors of other models go.
    """
    added = {}
    for there, one in store.manifest.compare.items() if overwrite else ():
        if not one.complete and not any(one.fits(comparer) for _, comparer, _ in given):
            remove_compare(store, there)
    check_added(store.manifest.compare, given, signal)
    for name, comparer, by_name in given:
        label = add_compare(store, comparer, name=name, signal=signal, by_name=by_name, progress=progress)
        added[label], signal = comparer, None
    return added


def match_comparers(manifest: Manifest, given: Sequence[Given]) -> dict[str, Comparer]:
    """Given models by their names in the index; one that its vectors do not come from is an error."""
    matched: dict[str, Comparer] = {}
    for name, model, _ in given:
        fitting = [label for label, one in manifest.compare.items() if one.fits(model)]
        label = name or next(iter([*fitting, model.kind]))
        if label not in manifest.compare:
            there = ", ".join(f"{key}: {one.model}" for key, one in manifest.compare.items()) or "none"
            raise CrosscutError(
                f"the index has no vectors of the compare model {Model.of(model)}; it has: {there}. "
                "Add them with add_compare or `crosscut index --compare`"
            )
        check_same(label, manifest.compare[label], model)
        matched[label] = model
    return matched


def check_model(kind: str, built_with: Model | None, given: Scorer | Encoder, options: Mapping[str, Any]) -> None:
    """Refuse a model that the stored numbers do not come from."""
    now = Model.of(given)
    if built_with is None or not built_with.is_same(now):
        was = f"{kind} {built_with}{_with(options)}" if built_with else f"no {kind}"
        this = f"{kind} {now}{_with(given.options() if isinstance(given, Scorer) else {})}"
        raise CrosscutError(
            f"the index was built with {was}, but this is {this}: "
            "use the same, or say other_models=True if this is meant"
        )


def _with(options: Mapping[str, Any]) -> str:
    return f" with {', '.join(f'{name}={value}' for name, value in options.items())}" if options else ""


def has_name(model: Scorer | Encoder | None) -> bool:
    """Whether the name of a model may find it again; that of a function finds, if anything, a stranger."""
    if isinstance(model, RemoteScorer):
        return True
    return (
        isinstance(model, TransformerScorer | ExportedScorer | PredictScorer | ModelEncoder | ExportedEncoder)
        and model.digest() != ""
    )
