"""Parties whose tasks are the scripts that they play, in any process: this module loads neither
torch nor pytest."""

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from inspect import currentframe, isgenerator
from typing import Any, ClassVar

import numpy as np

from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.parties.party import Participant, PartySpec
from fedpriv.parties.post import Expected, Post
from fedpriv.parties.schema import Raw
from fedpriv.util.work import Work


@dataclass
class Player(Participant):
    """notes: what it has been asked to remember."""

    belongings: Any
    notes: dict[str, Any] = field(default_factory=dict)
    busy: bool = False

    def take_part(self, task):
        script, *words = pickle.loads(task)
        played = script(self, *words)
        return played if isgenerator(played) else ended(played)

    def checkpoint(self):
        return {name: value for name, value in self.notes.items() if isinstance(value, np.ndarray)}

    @property
    def computing(self):
        return self.busy


@dataclass(frozen=True)
class Role(PartySpec):
    belongings: Any = None
    fails: bool = False

    def open(self, memory):
        if self.fails:
            raise ConfigError("data", "x", "another one")
        return Player(self.belongings, dict(memory))


def run(session, tasks, traffic=None):
    """Have parties play scripts: functions, with their arguments."""
    import ray.cloudpickle  # also for what a test program defines

    told = {name: ray.cloudpickle.dumps(tuple(task)) for name, task in tasks.items()}
    return session.run(told, traffic)


def ended(learned):
    return learned
    yield


def pid(player):
    return os.getpid()


def multiplies(player, value):
    inbox = yield {"server": value}
    return inbox["server"] * value


FULL = 13
"""A factor that no disk has room for."""


class Product(Work):
    """Takes its batch key from the first factor, which may fail. done: how many were done together,
    in this process."""

    done: ClassVar[list[int]] = []

    def __init__(self, factor, value):
        self.factor, self.value = factor, value

    @property
    def batch_key(self):
        return self.factor

    @property
    def nbytes(self):
        return self.value

    def run(self):
        return self.run_batch([self])[0]

    @classmethod
    def run_batch(cls, works):
        cls.done.append(len(works))
        if works[0].factor == FULL:
            raise OSError("full")
        return [work.factor * work.value for work in works]


def works(player, *factors):
    """The product of what it hears and all factors."""
    inbox = yield {}
    [value] = inbox.values()
    for factor in factors:
        value = yield Product(factor, value)
    yield {"server": value}
    return value


def adds(player):
    inbox = yield {}
    yield dict.fromkeys(inbox, sum(inbox.values()))


def tells(player, *messages, to="server"):
    for message in messages:
        yield {to: message}


def tells_both(player, to_a, to_b):
    """What comes back."""
    return (yield {"a": to_a, "b": to_b})


def tells_and_goes_on(player, *messages):
    """Mail to itself wakes it whatever becomes of the rest."""
    for message in messages:
        yield {"listener": message, "teller": "go on"}


def sums_all(player, silos):
    inbox = yield {}
    missing = [name for name in silos if name not in inbox]
    if missing:
        raise AggregationAbortedError(f"no message from {', '.join(missing)}")
    return sum(inbox.values())


def hears(player, steps=1):
    """What it heard in each step, senders in the order in which they came."""
    heard = []
    for _ in range(steps):
        heard.append(list((yield {}).items()))
    return heard


def garbles(player, reply):
    """From now on its process answers every request with these bytes."""
    globals_of("reply").update(encode=lambda _: reply, bundled=lambda _: reply)
    yield {"server": "first"}


def garbles_the_length(player):
    """From now on its process announces more than there is."""
    globals_of("serve")["len"] = lambda _: 2**62
    yield {"server": "first"}


def globals_of(function):
    """What a function around the party sees; Ray may have made a copy of its module."""
    frame = currentframe()
    while frame.f_code.co_name != function:
        frame = frame.f_back
    return frame.f_globals


def talks_in_strays(player, to):
    gate = Post("a", b"here")
    while True:
        yield gate.signed("something else", {to: b"ok", "a": None})


def awaits_a_word(player, sender):
    gate = Post("server", b"here")
    heard = yield from gate.receive(Expected("word", Raw(2), (sender,)))
    return heard.get(sender, "nothing"), gate.strays


def leaves(player, word=None):
    return word


def keeps_on(player, to, times):
    """Whether each answer was empty."""
    answers = []
    for number in range(times):
        answers.append((yield {to: number}))
    return answers


def talks_for_ever(player, *names):
    while True:
        yield dict.fromkeys(names, "and another thing")


def waits_for_ever(player):
    while True:
        yield {}


def asks(player, whom):
    answer = yield {whom: "hello"}
    return answer or "nobody"


def fails(player, error, *words):
    yield {}
    raise error(*words)


def fails_at_once(player, error, *words):
    raise error(*words)
    yield


def fails_with_a_class_of_its_own(player):
    class TooLateError(ConfigError):
        pass

    raise TooLateError("key", 3, "less than 3")
    yield


def refuses_the_task(player):
    raise AggregationAbortedError("not with me")


def returns_a_lock(player):
    return threading.Lock()


def echoes(player, to, value):
    return (yield {to: value})[to]


def passes_back(player, to):
    yield {to: (yield {})[to]}


def averages(player, value):
    """What it gets for its value, mail by mail."""
    answers = [(yield {"server": value})]
    for _ in range(3):
        answers.append((yield {"server": value + answers[-1].get("server", 0.0)}))
    return answers


def means(player, times):
    """Answer each time with the mean of what has come."""
    heard = []
    inbox = yield {}
    for _ in range(times):
        heard.append(inbox)
        inbox = yield dict.fromkeys(("a", "b"), sum(inbox.values(), 0.0) / max(len(inbox), 1))
    return heard


def remembers(player, name, value):
    player.notes[name] = value
    return sorted(player.notes)


def tells_notes(player):
    return dict(player.notes)


def tells_belongings(player):
    return player.belongings


# -- dropping out ----------------------------------------------------------------------------------


def speaks_twice(player, between=None, *words):
    """between: what happens after the first message, by the name of a function of this module."""
    yield {"server": "first"}
    if between:
        globals()[between](player, *words)
    yield {"server": "second"}


def listens_twice(player):
    first = yield {}
    second = yield dict.fromkeys(first, "go on")
    return sorted(first), sorted(second)


def dies(player, how=signal.SIGKILL):
    os.kill(os.getpid(), how)
    time.sleep(60)


def exits(player):
    sys.exit(0)


def sleeps(player, seconds):
    time.sleep(seconds)


def computes(player, seconds):
    player.busy = True
    time.sleep(seconds)
    player.busy = False


# -- its process -----------------------------------------------------------------------------------


def describes_its_process(player):
    return {
        "threads": os.environ["OMP_NUM_THREADS"],
        "folder": os.getcwd(),
        "torch": "torch" in sys.modules,
    }


def computes_on(player):
    import torch

    return torch.get_num_threads()


def imports(player, module):
    return __import__(module).ANSWER


def sees_gpus(player):
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def runs_on(player):
    import ray

    return ray.get_runtime_context().get_node_id()


def starts_a_child(player):
    return subprocess.Popen(["sleep", "300"]).pid


def sleeps_on(player):
    yield {}
    time.sleep(60)


# -- its memory ------------------------------------------------------------------------------------


def hides(player, size=32):
    """Draw a secret and tell it masked, with the mask: the two beside each other are nowhere the
    secret."""
    player.notes["secret"] = os.urandom(size)
    return masked(player.notes["secret"])


def hides_belongings(player):
    return masked(player.belongings[-32:])


def says_belongings(player, to):
    """Send all of it, so that what carries messages has carried it."""
    yield {to: player.belongings}


def masked(secret):
    mask = os.urandom(len(secret))
    return bytes(a ^ b for a, b in zip(secret, mask)), mask


def occurrences(player, needles):
    """How often this process's memory holds each needle ^ mask, of which never more than four bytes
    are put together here. needles: pairs of needle and mask."""
    found = [0] * len(needles)
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps.readlines():
            low, high, rights, file = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ (\d+)", line).groups()
            written = rights[1] == "w" or file == "0"  # other pages are those of a file
            if rights[0] == "r" and written and "[v" not in line:  # vvar, vsyscall
                for content in parts_of(memory, int(low, 16), int(high, 16)):
                    found = [
                        total + count_masked(content, *needle)
                        for total, needle in zip(found, needles)
                    ]
    return found


def parts_of(memory, low, high, step=2**18, overlap=31):
    """What is not empty, such as most of each stack, in overlapping parts."""
    empty = bytes(step + overlap)
    for at in range(low, high, step):
        try:
            memory.seek(at)
            content = memory.read(min(step + overlap, high - at))
        except (OSError, ValueError, OverflowError):
            continue
        if content != empty[: len(content)]:
            yield content


def count_masked(content, needle, mask):
    start = bytes(a ^ b for a, b in zip(needle[:4], mask))
    found, place = 0, content.find(start)
    while place >= 0:
        window = content[place : place + len(needle)]
        found += len(window) == len(needle) and all(
            a == b ^ c for a, b, c in zip(window, needle, mask)
        )
        place = content.find(start, place + 1)
    return found
