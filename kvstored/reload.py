"""Takes a changed configuration while the daemon runs: quotas and the level of the log."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kvstored.config import Config, ConfigError
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.upkeep.tier_quotas import QuotaError, TierQuotas

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """``read`` reads the configuration again; ``log_level`` is kept where it is given.

    ``started_with`` is what the daemon was started with: whatever differs from that, and can
    not be taken now, is named in the log.
    """

    read: Callable[[], Config]
    started_with: Config
    log_level: str | None = None

    def run(
        self,
        quotas: TierQuotas,
        limits_of: Callable[[Config], tuple[NamespaceLimits, ...]],
    ) -> None:
        """Takes what can be taken, or changes nothing where the configuration is wrong."""
        try:
            config = self.read()
            late = quotas.reload(limits_of(config), config.quotas.ttl_s)
        except (ConfigError, QuotaError) as error:
            LOGGER.error("nothing is reloaded: %s", error)  # noqa: TRY400 - one sentence
            return
        # Last: a level that hides what is said here is one that was asked for.
        LOGGER.info("reloaded quotas and the level of the log")
        late += changed_keys(self.started_with, config)
        if self.log_level is not None and self.log_level != config.log.level:
            late.append("log.level (--log-level stands before it)")
        if late:
            LOGGER.warning("a restart is needed for: %s", ", ".join(late))
        if self.log_level is None:
            logging.getLogger().setLevel(config.log.level.upper())


def changed_keys(before: Config, after: Config) -> list[str]:
    """Keys that differ, but for those that are reloaded."""
    return [
        f"{section}.{key}"
        for section in type(before).model_fields
        if section not in {"quotas", "log"}
        for key in type(getattr(before, section)).model_fields
        if getattr(getattr(before, section), key) != getattr(getattr(after, section), key)
    ]
