"""What it costs that the noise of a secure sum is right however many silos drop out:
`secagg_exact_noise`.

Processor seconds of one core. For one silo: `masks`, all of its masks with the others; `share`, its
noise when none of it is ever taken out; `parts`, its noise in parts. For the server: `unmask`,
taking the survivors' own masks off the sum and those of two silos that are gone, and `surplus`,
taking out the noise that is too much then. Most silos and fewest are the candidates and two thirds
of them; the fewer drop out, the more there is to take out. `noise` is the variance of the released
noise over the certified one, without taking any out (all silos' shares are sized for the fewest)
and with. `sent` is what a silo sends more: shares of the parts' secrets, in kB.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._apart import apart

CASES = [(20, 1_000_000), (100, 100_000)]


def main() -> None:
    """Run every case in a process of its own, and print a table."""
    print("exact noise; processor seconds of one silo and of the server")
    keys = ("masks", "share", "parts", "unmask", "surplus")
    print(
        f"{'silos':>6} {'fewest':>6} {'params':>8} "
        + " ".join(f"{key:>9}" for key in keys)
        + "   sent kB  noise"
    )
    for silos, parameters in CASES:
        r = apart(measure, silos, parameters)
        times = " ".join(f"{r[key]:7.3f} s" for key in keys)
        print(
            f"{silos:>6} {r['fewest']:>6.0f} {parameters:>8} {times} {r['sent']:>9.1f}  "
            f"{r['without']:.3f} -> {r['with']:.3f}",
            flush=True,
        )


def measure(silos: int, parameters: int) -> dict[str, float]:
    """Seconds of each piece of work; two silos are gone."""
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
    found: dict[str, float] = {
        "fewest": fewest,
        "sent": noise.parts * SHARE_BYTES * (silos - 1 + left - 1) / 1e3,
    }
    found["masks"], _ = timed(lambda: add_masks(vector, seeds(silos)))
    found["share"], _ = timed(
        lambda: mechanism.noise_share(parameters, fewest, generator, encoding=encoding)
    )
    found["parts"], share = timed(lambda: noise.share(generator, secrets[0]))
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
