"""The cost of noise that stays exact when silos drop out of a secure sum: `secagg_exact_noise`.

Processor seconds of one core. For one silo: `masks`, all its masks; `share`, its noise in one
piece; `parts`, its noise in removable parts. `share` and `parts` take alternating turns, and the
ratio is that of `parts` to `share`. For the server: `unmask`, removing the survivors' own masks and
those of two absent silos; `surplus`, removing the surplus noise. The sum covers at most all
candidates and at least two thirds of them. Fewer dropouts leave more noise to remove. `noise` is
the variance of the released noise relative to the certified one, without removal (all shares are
sized for the fewest silos) and with it. `sent` is what a silo sends in addition: shares of the
parts' secrets, in kB.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, ratio

TURNS = 3
CASES = [(20, 1_000_000), (100, 100_000)]


def main() -> None:
    """Run every case in its own process, and print a table."""
    print("exact noise; processor seconds of one silo and of the server; ratio: parts to share")
    keys = ("masks", "share", "parts", "unmask", "surplus")
    print(
        f"{'silos':>6} {'fewest':>6} {'params':>8} "
        + " ".join(f"{key:>9}" for key in keys)
        + "   sent kB  noise"
    )
    for silos, parameters in CASES:
        r = in_fresh_process(measure, silos, parameters)
        times = " ".join(f"{r[key]:7.3f} s" for key in keys)
        print(
            f"{silos:>6} {r['fewest']:>6.0f} {parameters:>8} {times} {r['sent']:>9.1f}  "
            f"{r['without']:.3f} -> {r['with']:.3f}  {r['ratio']}",
            flush=True,
        )


def measure(silos: int, parameters: int) -> dict[str, Any]:
    """Seconds of each piece of work; two silos are absent."""
    from fedpriv.aggregation.secagg.messages import SHARE_BYTES
    from fedpriv.crypto.prg import add_masks
    from fedpriv.encoding.fixed_point import FixedPoint
    from fedpriv.mechanisms.gaussian import Gaussian
    from fedpriv.mechanisms.removable_noise import RemovableNoise
    from fedpriv.util.streams import SystemGenerator

    mechanism = Gaussian(1.0, 1.0)
    fewest = 2 * silos // 3 + 1
    left = silos - 2
    encoding = FixedPoint(64, 100.0, silos)
    noise = RemovableNoise(mechanism, fewest, silos, parameters, 1.0, encoding)
    generator = SystemGenerator()
    vector = np.zeros(parameters, dtype=np.uint64)

    def seeds(count: int) -> list[bytes]:
        return [os.urandom(32) for _ in range(count)]

    secrets = seeds(left)
    kept = noise.kept(left)
    links = [noise.chain(secret)[kept] for secret in secrets]
    found: dict[str, Any] = {
        "fewest": fewest,
        "sent": noise.parts * SHARE_BYTES * (silos - 1 + left - 1) / 1e3,
    }
    found["masks"], _ = timed(lambda: add_masks(vector, seeds(silos)))
    programs = {
        "share": lambda: mechanism.noise_share(parameters, fewest, generator, encoding=encoding),
        "parts": lambda: noise.share(generator, secrets[0]),
    }
    times = alternating_turns(programs, TURNS, warm_up=0)
    found |= {name: float(np.median(seconds)) for name, seconds in times.items()}
    found["ratio"] = ratio(times["share"], times["parts"])
    share = noise.share(generator, secrets[0])
    found["unmask"], _ = timed(lambda: add_masks(vector, seeds(left), seeds(2 * left)))
    found["surplus"], _ = timed(lambda: noise.surplus(links, kept))
    own = noise.surplus(links[:1], kept)
    found["without"], found["with"] = left * share.var(), left * (share - own).var()
    return found


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and the result."""
    since = time.process_time()
    result = work()
    return time.process_time() - since, result


if __name__ == "__main__":
    main()
