"""The configurations of a sweep's jobs, without composing every one of them."""

from __future__ import annotations

from hydra import compose
from hydra._internal.config_loader_impl import get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf

from fedpriv.settings.experiment import GROUPS

FILES = frozenset({*GROUPS, "experiment", "profile"})
"""Keys whose values are names of files."""
ABSENT = object()


class Composer:
    """Composes the jobs of one sweep.

    Composing takes a tenth of a second, so it is done once for each choice of files. Plain values
    are then set in the result, as Hydra itself does last.

    fixed: words that all jobs share.
    """

    def __init__(self, fixed: list[str]) -> None:
        self.fixed = fixed
        self._known: dict[tuple[str, ...], DictConfig] = {}
        self._parsed: dict[str, Override] = {}

    def job(self, words: list[str]) -> DictConfig:
        """The configuration of the job with these words and the fixed ones. It is valid until the
        next one is asked for, which may be the same object."""
        chosen = [word for word in words if not self._is_value(word)]
        values = [self._override(word) for word in words if word not in chosen]
        config = self._composed(chosen)
        if any(
            OmegaConf.select(config, str(value.key_or_group), default=ABSENT) is ABSENT
            for value in values
        ):
            return self._composed(words)
        for value in values:  # all jobs set the same keys
            OmegaConf.update(config, str(value.key_or_group), value.value(), merge=False)
        if values:
            OmegaConf.set_readonly(config.hydra, False)  # `HydraConfig` makes it read-only
            task = [word for word in self.fixed if not word.startswith("hydra")]
            config.hydra.overrides.task = [*task, *words]
            config.hydra.job.override_dirname = self._dirname(config)
        return config

    def _composed(self, chosen: list[str]) -> DictConfig:
        if tuple(chosen) not in self._known:
            self._known[tuple(chosen)] = compose(
                "config", [*self.fixed, *chosen], return_hydra_config=True
            )
        return self._known[tuple(chosen)]

    def _override(self, word: str) -> Override:
        if word not in self._parsed:
            [self._parsed[word]] = OverridesParser.create().parse_overrides([word])
        return self._parsed[word]

    def _is_value(self, word: str) -> bool:
        """Whether a word sets a plain value: it adds or deletes nothing and chooses no file."""
        override = self._override(word)
        key = str(override.key_or_group)
        plain = override.type == OverrideType.CHANGE and override.package is None
        plain = plain and not isinstance(override.value(), dict)  # Hydra merges those
        return plain and key not in FILES and "/" not in key and not key.startswith("hydra")

    def _dirname(self, config: DictConfig) -> str:
        style = config.hydra.job.config.override_dirname
        overrides = [self._override(word) for word in config.hydra.overrides.task]
        return get_overrides_dirname(
            overrides=overrides,
            kv_sep=style.kv_sep,
            item_sep=style.item_sep,
            exclude_keys=style.exclude_keys,
        )
