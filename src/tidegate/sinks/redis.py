"""Redis: the current results as hashes, to be looked up by key in a fraction of a millisecond.

    revenue:shop-7:2026-03-01T12:00:00.000000Z      one hash per key and window: <prefix>:<key>:<window_start>
    revenue:%marker:<checkpoint>:<sink>             the marker: sequence, claim, applying

The hash holds ``window_end``, the value columns and ``pane_index``, ``pane_timing``, ``pane_final`` as text: decimals
with all digits, instants as ISO-8601 in UTC, booleans as true and false, arrays and structs as JSON, binary as it is.
A field that is NULL is not there. In the key's name ``:`` and ``%`` of a value are written ``%3A`` and ``%25``, NULL is
``%N``, and the global window is ``global``: different keys never share a name.

A record is applied by a script, which Redis runs with nothing in between: it looks at the marker's claim and refuses
a zombie, writes the rows, and moves the marker. A script that writes a million rows would stop the server for
seconds, so **up to `atomic_rows` rows are one step, and more are several**, the marker moving with the last. A reader
may then see a part of a large record, as `applying` in the marker says. Killed in between, the record comes again, and
as each of its rows is set or deleted by name, what comes out is the same. Every step refuses a zombie by itself.

Redis confirms before its disk has it (``appendfsync everysec`` may lose a second). A server that came back without
what it had confirmed shows it by its marker, and the sink stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlsplit

import pyarrow as pa

from tidegate import crash
from tidegate.errors import SinkError, Unavailable
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.marker import LookFirst, refuse_if_fenced, refuse_if_gone_back, vanished
from tidegate.sinks.panes import Changes, read_panes, reduce_panes
from tidegate.sinks.redis_rows import fields_of, packed_deletes, packed_upserts
from tidegate.time import Duration, positive

if TYPE_CHECKING:
    from redis import Redis as Client

SCHEMES = ("redis", "rediss", "unix")

TAKE_CLAIM = """
local claim = redis.call('HGET', KEYS[1], 'claim')
if not claim or tonumber(claim) <= tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'claim', ARGV[1], 'pipeline', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'sequence', 'claim')
"""

# Rows come as MessagePack: a list of rows, each a list of texts in which nil is NULL.
APPLY = """
local marker, claim, sequence, last, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == 'last', ARGV[4]
local found = redis.call('HMGET', marker, 'sequence', 'claim')
if not found[2] or tonumber(found[2]) > tonumber(claim) or (found[1] or '') ~= ARGV[5] then
  return {'refused', found[1], found[2]}
end
-- A script is stopped for want of memory at its first write only, so let that be one that takes memory.
redis.call('HSET', marker, 'applying', sequence, 'claim', claim)
local changed, fields = 0, cmsgpack.unpack(ARGV[8])
for _, row in ipairs(cmsgpack.unpack(ARGV[6])) do
  if redis.call('HGET', row[1], 'window_end') == (row[2] or false) then
    changed = changed + redis.call('DEL', row[1])
  end
end
for _, row in ipairs(cmsgpack.unpack(ARGV[7])) do
  local hash = {row[1]}
  for i = 1, #fields do
    local value = row[i + 2]
    if value then
      hash[#hash + 1] = fields[i]
      hash[#hash + 1] = value
    end
  end
  redis.call('DEL', row[1])
  redis.call('HSET', unpack(hash))
  if row[2] then
    redis.call('PEXPIREAT', row[1], row[2])
  elseif ttl ~= '' then
    redis.call('PEXPIRE', row[1], ttl)
  end
  changed = changed + 1
end
if last then
  redis.call('HSET', marker, 'sequence', sequence)
  redis.call('HDEL', marker, 'applying')
end
return {'applied', changed}
"""


@dataclass(frozen=True)
class Redis:
    """The current result per (key, window) as a hash whose name begins with `prefix`.

    >>> Redis("redis://:secret@cache.example:6379/0", prefix="revenue", ttl="7d").describe()
    'Redis cache.example:6379/0, hashes revenue:…, kept for 7d after the window'
    """

    url: str = field(repr=False)
    prefix: str
    ttl: Duration | None = None
    """How long a hash is kept; for ever when None."""
    ttl_from: Literal["window_end", "write"] = "window_end"
    """From when on: the end of its window (from writing, for the global window), or when it was last written."""
    atomic_rows: int = 10_000
    """Records of up to so many rows are applied in one step, during which the server does nothing else."""

    def describe(self) -> str:
        since = "the window" if self.ttl_from == "window_end" else "writing"
        kept = "" if self.ttl is None else f", kept for {self.ttl} after {since}"
        return f"Redis {self._server()}, hashes {self.prefix}:…{kept}"

    def problems(self) -> list[str]:
        if find_spec("redis") is None:
            return ["tg.Redis needs the package redis; install it with: pip install 'tidegate[redis]'"]
        problems = []
        if self._server() is None:
            problems.append("the url of tg.Redis is none; it looks like redis://user:password@host:6379/0")
        if not self.prefix:
            problems.append("tg.Redis needs a prefix, so that its hashes can be told from other keys")
        if self.ttl_from not in ("window_end", "write"):
            problems.append(f"ttl_from of tg.Redis is 'window_end' or 'write', but not {self.ttl_from!r}")
        if self.atomic_rows < 1:
            problems.append(f"atomic_rows of tg.Redis must be at least 1, but is {self.atomic_rows}")
        return problems

    def open(self, target: SinkTarget) -> RedisWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        return RedisWriter(self, str(self._server()), target)

    def _server(self) -> str | None:
        """Where it connects to, without user and password; None when the URL is none."""
        try:
            parts = urlsplit(self.url)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:  # its text may quote the password
            return None
        if parts.scheme not in SCHEMES or not (parts.hostname or parts.path):
            return None
        return f"{parts.hostname or ''}{port}{parts.path}"


class RedisWriter(LookFirst):
    """A `SinkWriter` that applies records by a script."""

    def __init__(self, sink: Redis, server: str, target: SinkTarget) -> None:
        self._sink, self._server, self._target = sink, server, target
        self._marker = ":".join(
            (sink.prefix, "%marker", quote(target.checkpoint_id, safe=""), quote(target.sink, safe=""))
        )
        self._ttl = None if sink.ttl is None else positive(sink.ttl, what="ttl")
        with self._explained():
            self._redis = _connect(sink.url)
            self._apply = self._redis.register_script(APPLY)
        try:
            self._refuse_if_evicting()
            with self._explained():
                take = self._redis.register_script(TAKE_CLAIM)
                sequence, claim = take(keys=[self._marker], args=[target.claim, target.pipeline])
            refuse_if_fenced(target, int(claim))
        except BaseException:
            self.close()
            raise
        self._known = _number(sequence)

    def close(self) -> None:
        self._redis.close()

    def _write(self, delivery: Delivery) -> int:
        panes = read_panes(delivery.files, self._target)
        empty = panes.slice(0, 0)
        steps = list(self._steps(reduce_panes(panes, self._target.key))) if panes.num_rows else [(empty, empty)]
        changed = 0
        for number, step in enumerate(steps, start=1):
            last = number == len(steps)
            if number > 1 or last:  # between any two steps, and before the only one
                crash.point("mid_sink")
            changed += self._step(delivery.sequence, *step, last=last)
        self._known = delivery.sequence
        return changed

    def _look(self) -> int | None:
        with self._explained():
            sequence, claim = self._redis.hmget(self._marker, ["sequence", "claim"])
        return self._judge(sequence, claim)

    def _judge(self, sequence: bytes | str | None, claim: bytes | str | None) -> int | None:
        confirmed = _number(sequence)
        if claim is not None:
            refuse_if_fenced(self._target, int(claim))
        refuse_if_gone_back(self._target, self._known, confirmed)
        if claim is None:
            raise vanished(self._target, f"Redis {self._server}")
        return confirmed

    def _steps(self, changes: Changes) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Deletes and upserts, step by step. Deletes come first: a session that grew has its name from the one gone."""
        rows, most = changes.deletes.num_rows + changes.upserts.num_rows, self._sink.atomic_rows
        if rows <= most:
            yield changes.deletes, changes.upserts
            return
        nothing = changes.deletes.slice(0, 0)
        for start in range(0, changes.deletes.num_rows, most):
            yield changes.deletes.slice(start, most), nothing
        for start in range(0, changes.upserts.num_rows, most):
            yield nothing, changes.upserts.slice(start, most)

    def _step(self, sequence: int, deletes: pa.Table, upserts: pa.Table, *, last: bool = False) -> int:
        target, since_write = self._target, self._sink.ttl_from == "write"
        ttl = None if since_write else self._ttl
        arguments = (
            target.claim,
            sequence,
            "last" if last else "",
            # Also for the global window, which has no end: its rows bring no time of their own.
            "" if self._ttl is None else self._ttl // 1000,
            "" if self._known is None else self._known,
            packed_deletes(deletes, self._sink.prefix, target.key),
            packed_upserts(upserts, self._sink.prefix, target.key, target.values, ttl),
            fields_of(target.values),
        )
        with self._explained():
            answer, *found = self._apply(keys=[self._marker], args=arguments)
        if answer == b"refused":
            confirmed = self._judge(*found)
            if confirmed is not None and confirmed >= sequence:
                return 0  # the answer was lost, and the script was sent again
            raise Unavailable(f"the marker in Redis {self._server} moved to {confirmed} while record {sequence} came")
        return int(found[0])

    def _refuse_if_evicting(self) -> None:
        """Redis as a cache throws keys away when it is full: results, and the marker, would be gone without a word."""
        with self._explained():
            memory = self._redis.info("memory")
        policy = str(memory.get("maxmemory_policy", ""))
        if policy.startswith("allkeys") and int(memory.get("maxmemory", 0)):
            raise SinkError(
                f"Redis {self._server} deletes keys when its memory is full (maxmemory-policy {policy}); "
                "results would vanish silently",
                hint="CONFIG SET maxmemory-policy noeviction (or volatile-ttl, which deletes only hashes with a ttl)",
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from redis import exceptions as errors

        final = (errors.AuthenticationError, errors.AuthorizationError, errors.NoPermissionError)
        try:
            yield
        except final as error:
            raise SinkError(
                f"Redis {self._server} does not let us in: {error}",
                hint="check user and password in the url, and that the user may run scripts on these keys",
            ) from error
        except (errors.ConnectionError, errors.TimeoutError, OSError) as error:
            loading = isinstance(error, errors.BusyLoadingError)
            why = "it is loading its data" if loading else "it does not answer"
            raise Unavailable(f"Redis {self._server} cannot be reached: {why}") from error
        except (errors.RedisError, ValueError) as error:
            text = str(error)
            named = f"{type(error).__name__}: {text}"
            if passing := next((why for word, why in PASSING.items() if word in named), None):
                raise Unavailable(f"Redis {self._server} cannot serve now: {passing}") from error
            raise SinkError(f"Redis {self._server} refused the record: {text}") from error


# By the server's code, which redis-py cuts off where it has a class for it, or by that class.
PASSING = {
    "READONLY": "it is a replica, and takes no writes",
    "MASTERDOWN": "its master is down",
    "CLUSTERDOWN": "its cluster is down",
    "LOADING": "it is loading its data",
    "BUSY": "another script is running",
    "TRYAGAIN": "its cluster is moving keys",
    "MISCONF": "it cannot save to its disk, and takes no writes until it can",
    "NOREPLICAS": "it has too few replicas, and takes no writes",
    "OOM": "its memory is full (maxmemory)",
    "ReadOnlyError": "it is a replica, and takes no writes",
    "MasterDownError": "its master is down",
    "ClusterDownError": "its cluster is down",
    "TryAgainError": "its cluster is moving keys",
    "OutOfMemoryError": "its memory is full (maxmemory)",
}


def _connect(url: str) -> Client:
    from redis import Redis as Connection
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # One more try finds a connection that went stale while nothing was to be delivered; a script may be run twice.
    client: Client = Connection.from_url(
        url, socket_timeout=60, socket_connect_timeout=10, socket_keepalive=True, retry=Retry(NoBackoff(), 1)
    )
    return client


def _number(value: bytes | str | None) -> int | None:
    return None if value is None else int(value)
