"""Several processes that train one model: what each has of a batch, what they tell each other, and how they end.

torchrun starts the processes, and torch.distributed connects them. Each one has a number, its rank. `joined` makes them
one group; without torchrun there is one process, `SINGLE`, for which everything here does nothing.

Every rank holds the same weights, codes and random state, takes the same decisions at the same places, and has a share
of the images of each step. Rank 0 alone talks to the user and writes files.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor

from neurosql.errors import InputError

TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for another that is connected and silent: rank 0 may solve a large assignment meanwhile. A
process that dies closes its connections, and is missed at once."""
ENDED = "neurosql.ended"
"""Where a rank that can't go on leaves its reason for the others."""
ROUND = "neurosql.round"
"""Where ranks find out which of them were started together."""
KEPT = "neurosql.kept"
"""Where rank 0 says that it has saved what there is to save."""
WAIT, PATIENCE = timedelta(seconds=2), timedelta(seconds=20)
"""How long a rank waits for a word about the end of another, and for rank 0 to save."""
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process."""


class Lost(InputError):
    """Another rank has ended, or can't be reached."""


class Spare(Exception):
    """There are more ranks than images in a step: this one has nothing to do."""


class Part(NamedTuple):
    """The rows of a joint batch that one rank has."""

    begin: int
    end: int
    whole: int
    """Rows of the joint batch."""

    @property
    def rows(self) -> slice:
        """The rows, as an index."""
        return slice(self.begin, self.end)

    def of(self, draw: Callable[[int], Tensor]) -> Tensor:
        """The rows of what `draw(n)` draws for the joint batch: every rank draws all of it, so their states agree."""
        return draw(self.whole)[self.rows]

    @classmethod
    def all(cls, n: int) -> Part:
        """All of n rows."""
        return cls(0, n, n)


class Ranks:
    """The processes that train together, as one of them sees them. Every method must be called by all, in one order."""

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None, store: Any = None) -> None:
        self.rank, self.size, self.group, self.store = rank, size, group, store
        self.exchanged = 0
        """Bytes of the tensors that this rank has sent or received, each counted once per call."""

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which talks to the user and writes files."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether there is more than one process."""
        return self.size > 1

    def part(self, n: int, rank: int | None = None) -> Part:
        """What a rank, by default this one, has of n rows: as `tensor_split` divides them."""
        rank = self.rank if rank is None else rank
        each, more = divmod(n, self.size)
        begin = rank * each + min(rank, more)
        return Part(begin, begin + each + (rank < more), n)

    def add(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks, in place."""
        return self._reduce(tensor, "SUM")

    def least(self, tensor: Tensor) -> Tensor:
        """The smallest of each value over all ranks, in place."""
        return self._reduce(tensor, "MIN")

    def _reduce(self, tensor: Tensor, how: str) -> Tensor:
        if self.several:
            import torch.distributed as dist

            with self._talking(tensor):
                dist.all_reduce(tensor, getattr(dist.ReduceOp, how), group=self.group)
        return tensor

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each number over all ranks."""
        return self.add(torch.tensor(values, dtype=torch.float64)).tolist() if self.several else list(values)

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return bool(self.sums([float(flag)])[0]) if self.several else flag

    def most(self, value: float) -> float:
        """The largest of a number over all ranks."""
        return -float(self.least(torch.tensor(-value, dtype=torch.float64))) if self.several else value

    def decide(self, value: float) -> float:
        """Rank 0's word."""
        return float(self.spread(torch.tensor(value, dtype=torch.float64))) if self.several else value

    def spread(self, tensor: Tensor, source: int = 0) -> Tensor:
        """A tensor of one rank, by default rank 0, in place of what the others had."""
        if self.several:
            import torch.distributed as dist

            with self._talking(tensor):
                dist.broadcast(tensor, source, group=self.group)
        return tensor

    def tell(self, tensors: dict[str, Tensor], plain: Any = None) -> tuple[dict[str, Tensor], Any]:
        """Tensors by name, and plain values, of rank 0; what the others give is not looked at."""
        if not self.several:
            return tensors, plain
        import safetensors.torch

        content = b""
        if self.first:
            stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            content = safetensors.torch.save(stored, {"plain": json.dumps(plain)})
        size = self.spread(torch.tensor(len(content)))
        sent = torch.frombuffer(bytearray(content), dtype=torch.uint8) if self.first else torch.empty(int(size)).byte()
        self.spread(sent)
        if self.first:
            return tensors, plain
        content = sent.numpy().tobytes()
        # The header is a length of eight bytes and then JSON.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return safetensors.torch.load(content), json.loads(header["__metadata__"]["plain"])

    def counts(self, n: int) -> list[int]:
        """How many of n rows each rank has."""
        parts = (self.part(n, rank) for rank in range(self.size))
        return [part.end - part.begin for part in parts]

    def gather(self, mine: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all ranks, one after the other, of which each has as many as `counts` says."""
        if not self.several:
            return mine
        import torch.distributed as dist

        padded = mine.new_zeros(max(counts), *mine.shape[1:])
        padded[: len(mine)] = mine
        found = [torch.empty_like(padded) for _ in range(self.size)]
        with self._talking(*found):
            dist.all_gather(found, padded, group=self.group)
        return torch.cat([rows[:count] for rows, count in zip(found, counts)])

    def collect(self, mine: Tensor, whole: int) -> Tensor | None:
        """All of n = `whole` rows, of which each rank has its part, for rank 0; None for the others.

        Rank 0 needs no more memory than the result.
        """
        if not self.several:
            return mine
        import torch.distributed as dist

        if not self.first:
            if len(mine):
                with self._talking(mine):
                    dist.send(mine.contiguous(), 0, group=self.group)
            return None
        found = mine.new_empty(whole, *mine.shape[1:])
        found[self.part(whole).rows] = mine
        for rank in range(1, self.size):
            rows = found[self.part(whole, rank).rows]
            if len(rows):
                with self._talking(rows):
                    dist.recv(rows, rank, group=self.group)
        return found

    @contextmanager
    def after_first(self) -> Iterator[None]:
        """Within the context, rank 0 works first, and the others once it is done."""
        if not self.first:
            self.decide(0.0)
        yield
        if self.first:
            self.decide(0.0)

    def of_first(self, count: int) -> Ranks:
        """The first `count` ranks alone; a rank that is not among them raises `Spare`."""
        if count >= self.size:
            return self
        import torch.distributed as dist

        with self._talking():
            group = dist.new_group(list(range(count)), timeout=TIMEOUT)
        if self.rank >= count:
            raise Spare
        return Ranks(self.rank, count, group if count > 1 else None, self.store)

    @contextmanager
    def first_ends_last(self) -> Iterator[None]:
        """Rank 0 ends what it does within the context before the others go on, for torchrun stops what is left of a job
        when a rank fails. It may be that not all ranks come here: nobody waits for long.
        """
        try:
            yield
        finally:
            if self.several and self.store is not None:
                with suppress(Exception):
                    self.store.set(KEPT, "") if self.first else self.store.wait([KEPT], PATIENCE)

    def leave_word(self, reason: str) -> None:
        """Tell the other ranks why this one ends, before it does."""
        if self.several and self.store is not None:
            with suppress(Exception):
                self.store.set(ENDED, f"rank {self.rank} ended: {reason}")

    @contextmanager
    def _talking(self, *tensors: Tensor) -> Iterator[None]:
        """Count what is exchanged within the context, and say in one sentence if another rank is not there."""
        self.exchanged += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        try:
            yield
        except RuntimeError as error:
            raise Lost(self._why(error)) from None

    def _why(self, error: RuntimeError) -> str:
        with suppress(Exception):
            # Whoever left a word did so before its connections closed.
            self.store.set_timeout(WAIT)
            if self.store.check([ENDED]):
                return f"rank {self.rank} ends, because {self.store.get(ENDED).decode()}"
        words = str(error).strip().splitlines()
        reason = words[0].partition(".cc:")[2].partition("] ")[2] or words[0] if words else type(error).__name__
        reason = reason.partition(". ")[0].rstrip(".")[:200]
        return (
            f"rank {self.rank} ends, because another rank was killed or can't be reached ({reason}): start the job "
            "again to go on from the last checkpoint"
        )


SINGLE = Ranks()
"""One process on its own."""
_here = SINGLE


def here() -> Ranks:
    """The ranks that train together now."""
    return _here


@contextmanager
def among(ranks: Ranks) -> Iterator[Ranks]:
    """Within the context, these ranks train together."""
    global _here
    before, _here = _here, ranks
    try:
        yield ranks
    finally:
        _here = before


def launched() -> bool:
    """Whether torchrun has started this process as one of several."""
    return all(name in os.environ for name in VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1


def restarts() -> int:
    """How often torchrun, or SLURM, has started this process's job again."""
    counts = (os.environ.get(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
    return sum(int(count) for count in counts if count.isdecimal()) if "TORCHELASTIC_RUN_ID" in os.environ else 0


def may_restart() -> bool:
    """Whether torchrun starts the job again if a rank fails."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in ("", "0")


def local_rank() -> int:
    """The number of this process on its machine, which is that of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def joined() -> Iterator[Ranks]:
    """Within the context, all processes that torchrun has started train together; without it, one trains alone."""
    if not launched() or _here.several:
        yield _here
        return
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    _stay_on_this_machine()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if local_rank() < torch.cuda.device_count():
        torch.cuda.set_device(local_rank())
    try:
        found, rank, size = next(rendezvous("env://", rank, size, timeout=TIMEOUT))
        store = PrefixStore(_round(found, rank, size), found)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except RuntimeError as error:
        words = str(error).strip().splitlines()[0][:200]
        raise Lost(f"rank {rank} of {size} could not join the others: {words}") from None
    ranks = Ranks(rank, size, None, store)
    try:
        with among(ranks):
            yield ranks
    except Lost:
        raise
    except Spare:
        raise
    except BaseException as error:
        ranks.leave_word(str(error) or type(error).__name__)
        raise
    finally:
        with suppress(Exception):
            dist.destroy_process_group()


def _round(store: Any, rank: int, size: int) -> str:
    """A name that the ranks of this start of the job share, and those of an earlier start did not.

    If torchrun starts ranks again, their store may still hold what earlier ones wrote, such as addresses at which no
    process listens any more. Rank 0 makes up a name, the others answer it with a word of their own, and a rank that
    finds its word in what rank 0 has heard knows that the name is not an old one.
    """
    mine = uuid.uuid4().hex
    if rank == 0:
        store.set(f"{ROUND}.name", mine)
        words = [store.get(f"{ROUND}.{mine}.{other}").decode() for other in range(1, size)]
        store.set(f"{ROUND}.{mine}.heard", " ".join(words))
        return mine
    give_up = time.monotonic() + TIMEOUT.total_seconds()
    while time.monotonic() < give_up:
        name = store.get(f"{ROUND}.name").decode()
        store.set(f"{ROUND}.{name}.{rank}", mine)
        heard = f"{ROUND}.{name}.heard"
        if store.check([heard]) and mine in store.get(heard).decode().split():
            return name
        time.sleep(0.02)
    raise RuntimeError("rank 0 did not answer")


def _stay_on_this_machine() -> None:
    """Listen on loopback alone if all ranks are on this machine: gloo would take the machine's own address."""
    if os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"] or not hasattr(socket, "if_nameindex"):
        return
    found = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if found:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", found[0])
