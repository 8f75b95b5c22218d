"""A rerank server as a scorer, in the dialects of Cohere and of text-embeddings-inference (TEI).

Both take one query and some texts, and answer with an index and a score for each text, best first.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from crosscut.errors import CrosscutError
from crosscut.scorers.base import Pair, Scorer, bad_text
from crosscut.scorers.remote_http import HttpServer, Refused, all_of
from crosscut.system import needs_extra


class RemoteScorer(Scorer):
    """What the dialects share. A key comes from the environment, and is kept nowhere.

    Pairs are grouped by query and sent `batch_size` at a time, at most `concurrency` requests at once. For the
    other settings, all in seconds but `tries`, see `HttpServer`. A request that is too large for the server
    (413, 422) is sent in halves, down to the one item that is refused.
    """

    key_variable: ClassVar[str]
    usual_batch_size: ClassVar[int]
    too_long: ClassVar[str]

    def __init__(
        self,
        name: str,
        *,
        batch_size: int | None = None,
        concurrency: int = 4,
        connect_timeout: float = 10.0,
        timeout: float = 60.0,
        tries: int = 6,
        backoff: float = 1.0,
        longest_wait: float = 60.0,
    ) -> None:
        with needs_extra("remote", "a rerank server"):
            import httpx  # noqa: F401
        self.batch_size = self.usual_batch_size if batch_size is None else batch_size
        if self.batch_size < 1:
            raise CrosscutError(f"batch_size must be at least 1, but is {batch_size}")
        self.name, url = self._read_name(name)
        self._server = HttpServer(
            url,
            key_variable=self.key_variable,
            concurrency=concurrency,
            connect_timeout=connect_timeout,
            timeout=timeout,
            tries=tries,
            backoff=backoff,
            longest_wait=longest_wait,
        )

    def withhold_key(self) -> None:
        """For an address that an index brings along: whoever made the index could have named any."""
        self._server.sends_key = self._server.is_local

    @abstractmethod
    def _read_name(self, name: str) -> tuple[str, str]:
        """The name in its plainest form, and the address that it stands for."""

    @abstractmethod
    async def _scores(self, query: str, texts: list[str]) -> list[float]:
        """One request; a `Refused` with 413 or 422 says that it was too large."""

    async def _largest_batch(self) -> int:
        return self.batch_size

    def _score(self, pairs: Sequence[Pair]) -> np.ndarray:
        if problem := bad_text(pairs):  # or else the server would be blamed
            raise CrosscutError(problem)
        return self._server.run(lambda: self._score_all(pairs))

    async def _score_all(self, pairs: Sequence[Pair]) -> np.ndarray:
        size = await self._largest_batch()
        of_query: dict[str, list[int]] = {}
        for position, (query, _) in enumerate(pairs):
            of_query.setdefault(query, []).append(position)
        parts = [all[i : i + size] for all in of_query.values() for i in range(0, len(all), size)]
        found = await all_of(self._halving(pairs[part[0]][0], [pairs[p][1] for p in part]) for part in parts)
        scores = np.empty(len(pairs))
        for part, values in zip(parts, found, strict=True):
            scores[part] = values
        return scores

    async def _halving(self, query: str, texts: list[str]) -> list[float]:
        try:
            return await self._scores(query, texts)
        except Refused as error:
            if error.status not in (413, 422):
                raise
            if len(texts) == 1:
                text = texts[0] if len(texts[0]) <= 80 else texts[0][:79] + "…"
                raise CrosscutError(f"{error}, asked about the one item {text!r}: {self.too_long}") from error
        half = len(texts) // 2
        return await self._halving(query, texts[:half]) + await self._halving(query, texts[half:])


class CohereScorer(RemoteScorer):
    """`cohere:MODEL`, or `cohere:MODEL@URL` for another server that speaks Cohere's v2/rerank (vLLM, Jina, …).

    A URL that does not end in /rerank gets /v2/rerank. Without one, the address is CO_API_URL from the
    environment, else api.cohere.com. The key is CO_API_KEY.

    Cohere gives a relevance between 0 and 1. Its score here is the logit, ln(p / (1 - p)), with p kept between
    1e-7 and 1 - 1e-7: the order is the same, and the scores spread as a cross-encoder's do, where relevances
    crowd at 0 and 1 and no linear model could tell them apart. Servers differ about empty texts (an error, or
    no answer), so these are not sent: their relevance is 0. Texts beyond the model's own limit are cut by
    Cohere, which does not say so (rerank-v3.5: 4096 tokens with the query).

    A request has 100 texts unless you say otherwise, which is what Cohere bills as one search.

    >>> CohereScorer("cohere:bge-reranker@http://localhost:8000/").name
    'cohere:bge-reranker@http://localhost:8000'
    """

    key_variable = "CO_API_KEY"
    usual_batch_size = 100
    too_long = "shorten it"

    def _read_name(self, name: str) -> tuple[str, str]:
        self._model, at, url = name.removeprefix("cohere:").partition("@")
        self._model = self._model.strip()
        if not self._model:
            raise CrosscutError("a Cohere server is named cohere:MODEL or cohere:MODEL@URL, but MODEL is missing")
        self._own_address = bool(at)
        url = url if at else os.environ.get("CO_API_URL") or "https://api.cohere.com"
        address = _address(url, self.key_variable)
        endpoint = address if address.endswith("/rerank") else address + "/v2/rerank"
        return f"cohere:{self._model}" + (f"@{address}" if at else ""), endpoint

    def withhold_key(self) -> None:
        if self._own_address:
            super().withhold_key()

    async def _scores(self, query: str, texts: list[str]) -> list[float]:
        scores = [_logit(0.0)] * len(texts)
        sent = [position for position, text in enumerate(texts) if text.strip()]
        if not sent:
            return scores
        body = {"model": self._model, "query": query, "documents": [texts[p] for p in sent], "top_n": len(sent)}
        answer = await self._server.ask("POST", body=body)
        results = answer.get("results") if isinstance(answer, dict) else None
        for position, relevance in zip(
            sent, _in_order(results, "relevance_score", len(sent), self._server.url), strict=True
        ):
            if not 0 <= relevance <= 1:
                raise CrosscutError(
                    f"{self._server.url} gave a relevance of {relevance}, but Cohere's lie between 0 and 1: "
                    "have the server give probabilities, or call it from a function of yours"
                )
            scores[position] = _logit(relevance)
        return scores


class TeiScorer(RemoteScorer):
    """`tei:URL`, a server of Hugging Face's text-embeddings-inference, asked for raw scores: logits.

    Texts that are longer than its model reads are an error; `tei:URL?truncate=true` has the server cut them.
    Requests are never larger than the server says it takes. The key, if it wants one, is TEI_API_KEY.

    >>> TeiScorer("tei:http://localhost:8080/?truncate=true").name
    'tei:http://localhost:8080?truncate=true'
    """

    key_variable = "TEI_API_KEY"
    usual_batch_size = 32
    too_long = "shorten it, or end the scorer's name in ?truncate=true to have the server cut what is too long"

    def _read_name(self, name: str) -> tuple[str, str]:
        url, _, setting = name.removeprefix("tei:").partition("?")
        if setting not in ("", "truncate=true", "truncate=false"):
            raise CrosscutError("after the ? of a TEI server's name can only be truncate=true or truncate=false")
        self._truncate = setting == "truncate=true"
        self._info: dict[str, Any] | None = None
        address = _address(url, self.key_variable).removesuffix("/rerank")
        return f"tei:{address}" + ("?truncate=true" if self._truncate else ""), address

    def digest(self) -> str:
        """By the model's name on the hub and its revision, as far as the server tells them.

        A folder on the server's disk can hold anything, so there the address counts as well.
        """
        info = self._server.run(self._ask_info)
        model = info.get("model_id")
        if not isinstance(model, str) or not model:
            return ""
        on_hub = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model)
        told = ["tei", model, info.get("model_sha") or "", "" if on_hub else self._server.url]
        return hashlib.sha256("\n".join(map(str, told)).encode()).hexdigest()[:16]

    async def _largest_batch(self) -> int:
        limit = (await self._ask_info()).get("max_client_batch_size")
        return min(self.batch_size, limit) if isinstance(limit, int) and limit > 0 else self.batch_size

    async def _ask_info(self) -> dict[str, Any]:
        if self._info is None:
            try:
                info = await self._server.ask("GET", "/info")
            except Refused as error:
                if error.status not in (404, 405):
                    raise
                info = None  # a server that speaks the dialect without being TEI
            self._info = info if isinstance(info, dict) else {}
        return self._info

    async def _scores(self, query: str, texts: list[str]) -> list[float]:
        body = {"query": query, "texts": texts, "raw_scores": True, "truncate": self._truncate}
        answer = await self._server.ask("POST", "/rerank", body)
        return _in_order(answer, "score", len(texts), self._server.url + "/rerank")


def _address(url: str, key_variable: str) -> str:
    """`url`, if it is one and holds no secret; names are stored in indexes and printed."""
    if "@" in url:
        raise CrosscutError(
            "the address of a rerank server may hold no user and password, as it is stored in indexes: "
            f"put the key into the environment variable {key_variable}"
        )
    try:
        parts = urlsplit(url.strip())
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise CrosscutError("a rerank server's address must look like http://host:port, with a path if need be")
    return url.strip().rstrip("/")


def _in_order(results: Any, key: str, count: int, url: str) -> list[float]:
    """The scores by the indexes they come with, of which each must be there once.

    >>> _in_order([{"index": 1, "score": 5.0}, {"index": 0, "score": 2.5}], "score", 2, "http://here")
    [2.5, 5.0]
    """
    try:
        scores = [(entry["index"], entry[key]) for entry in results]
        indexes = sorted(index for index, _ in scores)
        values = [float(score) for _, score in sorted(scores)]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise CrosscutError(f"{url} did not answer with a list of objects with index and {key}") from error
    if indexes != list(range(count)):
        raise CrosscutError(
            f"{url} was sent {count} texts and answered for {len(indexes)}: {_odd(indexes, count)}"
        )
    return values


def _odd(indexes: list[Any], count: int) -> str:
    if strange := [index for index in indexes if index not in range(count)]:
        return f"there is no text number {strange[0]}"
    if missing := sorted(set(range(count)) - set(indexes)):
        return f"number {missing[0]} is missing"
    return "some are there more than once"


def _logit(probability: float) -> float:
    """
    >>> [round(_logit(p), 2) for p in (0.0, 0.25, 0.5, 1.0)]
    [-16.12, -1.1, 0.0, 16.12]
    """
    clamped = min(max(probability, 1e-7), 1 - 1e-7)
    return math.log(clamped) - math.log1p(-clamped)
