"""Run every benchmark, or those named: `python -m benchmarks [name ...]`."""

import importlib
import pkgutil
import sys

import benchmarks


def main(names: list[str]) -> None:
    found = [
        module.name
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if not module.name.startswith("_")
    ]
    unknown = sorted(set(names) - set(found))
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(found)}")
    for name in names or found:
        print(f"== {name} ==", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
