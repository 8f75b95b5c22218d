"""JSON over HTTP, with patience: time limits, retries, bounded concurrency, errors that say what to do."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from crosscut.errors import CrosscutError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
_LOCK = threading.Lock()


class Refused(CrosscutError):
    """The server understood and said no: to ask again would not help."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpServer:
    """A server at `url`, asked by at most `concurrency` requests at a time over connections that are kept.

    A try ends after `timeout` seconds, however busily the server drips bytes. Answers 408, 429 and 5xx, broken
    connections and time-outs are tried again, `tries` times in all; the waits between start at `backoff`
    seconds and double, are as long as the server's Retry-After asks, and never longer than `longest_wait`.
    """

    def __init__(
        self,
        url: str,
        *,
        key_variable: str,
        concurrency: int,
        connect_timeout: float,
        timeout: float,
        tries: int,
        backoff: float,
        longest_wait: float,
    ) -> None:
        for name, value in (("concurrency", concurrency), ("tries", tries)):
            if value < 1:
                raise CrosscutError(f"{name} must be at least 1, but is {value}")
        for name, seconds in (("connect_timeout", connect_timeout), ("timeout", timeout)):
            if not seconds > 0:
                raise CrosscutError(f"{name} must be more than 0 seconds, but is {seconds}")
        self.url, self.key_variable, self.sends_key = url, key_variable, True
        self._concurrency, self._tries = concurrency, tries
        self._connect_timeout, self._timeout = connect_timeout, timeout
        self._backoff, self._longest_wait = backoff, longest_wait
        self._connection: _Connection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connection": None}  # the settings travel to other processes, sockets do not

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work()`, which asks the server as it likes, from any thread."""
        try:
            connection = self._connected()
            future = asyncio.run_coroutine_threadsafe(work(), connection.loop)
            try:
                return future.result()
            except BaseException:  # Ctrl-C above all: requests under way are dropped, waits are ended
                future.cancel()
                raise
        except CrosscutError:
            raise
        except Exception as error:  # of many kinds: a host that is none, a proxy that is none, no certificates
            problem = self._cleaned(f"{type(error).__name__}: {error}")
            raise CrosscutError(
                f"{self.url} cannot be asked ({problem}): check the address, "
                "and the variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE where they are set"
            ) from error

    async def ask(self, method: str, path: str = "", body: Any = None) -> Any:
        """The JSON that the server answers."""
        import httpx

        connection, url, problem = self._connected(), self.url + path, ""
        async with connection.slots:  # kept while waiting, too: less is asked of a server that is overloaded
            for attempt in range(self._tries):
                asked_to_wait = 0.0
                try:
                    request = connection.client.request(method, url, json=body, headers=self._headers())
                    response = await asyncio.wait_for(request, self._timeout)
                except asyncio.TimeoutError:
                    problem = f"did not finish its answer in {self._timeout:g} seconds"
                except httpx.RequestError as error:
                    problem = f"could not be asked ({self._cleaned(f'{type(error).__name__} {error}')})"
                else:
                    if response.is_success:
                        return self._json(response)
                    problem = self._problem(response)
                    if not _may_pass(response.status_code):
                        raise Refused(response.status_code, f"{url} {problem}{self._advice(response.status_code)}")
                    asked_to_wait = seconds_to_wait(response.headers.get("Retry-After", ""))
                if attempt + 1 < self._tries:
                    await asyncio.sleep(self._wait(attempt, asked_to_wait))
        raise CrosscutError(
            f"{url} {problem}, and was tried {self._tries} times: see that the server is up and can be reached, "
            "or ask less of it (concurrency, batch_size) and give it more time (timeout, tries)"
        )

    def _connected(self) -> _Connection:
        with _LOCK:
            # A forked process has inherited neither the thread nor the right to use the sockets.
            if self._connection is None or self._connection.process != os.getpid():
                self._connection = _Connection(self._concurrency, self._connect_timeout)
                weakref.finalize(self, self._connection.close).atexit = False
            return self._connection

    def _wait(self, attempt: int, asked_to_wait: float) -> float:
        # Without chance, all that failed at one moment would come back at one moment.
        wait = self._backoff * 2**attempt * random.uniform(0.5, 1.0)
        return min(max(wait, asked_to_wait), self._longest_wait)

    def _headers(self) -> dict[str, str]:
        key = self._key()
        if not (key.isascii() and key.isprintable()):  # an HTTP library would quote it in its complaint
            raise CrosscutError(f"the environment variable {self.key_variable} holds characters that no key has")
        return {"Authorization": f"Bearer {key}"} if key and self.sends_key else {}

    def _key(self) -> str:
        return os.environ.get(self.key_variable, "").strip()

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise CrosscutError(
                f"{response.url} answered with something that is not JSON ({self._cleaned(response.text)!r}): "
                "check that a rerank server is at this address"
            ) from error

    def _problem(self, response: httpx.Response) -> str:
        said = self._cleaned(_message(response.text))
        return f"answered {response.status_code}" + (f" ({said})" if said else "")

    def _cleaned(self, text: str, limit: int = 200) -> str:
        """One printable line, not too long, and without the key, whatever the server says of it."""
        if key := self._key():
            text = text.replace(key, "…")
        text = "".join(char for char in " ".join(text.split()) if char.isprintable())
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def _advice(self, status: int) -> str:
        if status in (401, 403) and self._key() and not self.sends_key:
            return (
                ": it was sent no key, as its address comes from the index and not from you; "
                "if you trust it, give it as scorer="
            )
        if status in (401, 403):
            return f": set the environment variable {self.key_variable} to a key that it accepts"
        if status == 404:
            return ": check the address and the name of the model"
        return ""


class _Connection:
    """Connections, and an event loop for them in a thread of its own.

    So it works where a loop is running already (notebooks, servers); as the thread is a daemon, no server can
    keep the program from ending.
    """

    def __init__(self, concurrency: int, connect_timeout: float) -> None:
        import httpx

        self.process = os.getpid()
        self.client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=connect_timeout),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        )
        self.slots = asyncio.Semaphore(concurrency)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="crosscut-remote", daemon=True).start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def close(self) -> None:
        async def end() -> None:
            await self.client.aclose()
            self.loop.stop()

        if self.process == os.getpid():
            asyncio.run_coroutine_threadsafe(end(), self.loop)


async def all_of(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all jobs, in order; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def seconds_to_wait(retry_after: str) -> float:
    """What a Retry-After header asks for: seconds or a date; 0 for what cannot be read.

    >>> seconds_to_wait("3"), seconds_to_wait("Fri, 31 Dec 1999 23:59:59 GMT"), seconds_to_wait("soon")
    (3.0, 0.0, 0.0)
    """
    try:
        if retry_after.strip().isdecimal():
            return float(retry_after)
        date = parsedate_to_datetime(retry_after)
        return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def _may_pass(status: int) -> bool:
    return status in (408, 429) or status >= 500


def _message(text: str) -> str:
    """The server's own words: each kind of server puts them under another key."""
    try:
        found = json.loads(text)
        for key in ("error", "message", "detail"):
            if isinstance(found, dict) and key in found:
                found = found[key]
        return found if isinstance(found, str) else json.dumps(found)
    except (ValueError, RecursionError):
        return text
