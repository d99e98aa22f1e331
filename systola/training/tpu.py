# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's names for a TPU, which mean a pod of simulated cores here.

    resolver = TPUClusterResolver(tpu="grpc://10.0.0.2:8470")
    experimental_connect_to_cluster(resolver)
    initialize_tpu_system(resolver)
    strategy = TPUStrategy(resolver)
    with strategy.scope():
        model = Sequential([...])  # trains on the pod

The cores are simulated in this process: an address is kept, but nothing is connected. Training
takes the fast back end, which makes the bytes of the pod, unless the resolver has another back end.
"""

from __future__ import annotations

from typing import Any

from systola.arch.config import Config, ConfigError
from systola.arch.config import preset as named_preset
from systola.runtime.make_backend import MAX_LATENCY
from systola.runtime.pod.strategy import MAX_CORES, Strategy, current_strategy
from systola.training.arguments import Only, constructor, takes
from systola.training.checks import choice, shown, whole
from systola.training.errors import TrainingError
from systola.training.keras_model import from_keras
from systola.training.model import DEFAULT_PRESET, Sequential
from systola.training.settings import BACKENDS, FAST

_CLOUD = Only((None,), "cores are simulated here")


@constructor(zone=_CLOUD, project=_CLOUD, job_name=Only(("worker",)), coordinator_name=_CLOUD)
class TPUClusterResolver:
    """A pod with the address `tpu`: eight simulated cores, or as many as `cores`.

    Each core has the preset `preset`, the back end `backend` and memories of `latency` cycles, as
    compile() takes them. Back end "fast" learns the bytes of the pod in numpy; "rtl" and "iss"
    simulate its cores. Raises TrainingError for unknown settings.
    """

    def __init__(
        self,
        tpu: str | None = None,
        *,
        cores: int = 8,
        preset: str | Config = DEFAULT_PRESET,
        backend: str = FAST,
        latency: int = 0,
    ) -> None:
        if tpu is not None and not isinstance(tpu, str):  # type: ignore[reportUnnecessaryIsInstance]
            raise TrainingError(f"tpu must be an address, not {shown(tpu)}")
        if not isinstance(preset, (str, Config)):  # type: ignore[reportUnnecessaryIsInstance]
            raise TrainingError(f"a preset is a name or a Config, not {shown(preset)}")
        self._address = tpu or "local"
        self.cores = whole("cores", cores, 1, MAX_CORES)
        try:
            self.preset = named_preset(preset) if isinstance(preset, str) else preset
        except ConfigError as error:
            raise TrainingError(str(error)) from None
        self.backend = choice("back end", backend, BACKENDS)
        self.latency = whole("latency", latency, 0, MAX_LATENCY)

    def master(self) -> str:
        """Return the address of the pod, "local" if none was given."""
        return self._address


class TPUStrategy(Strategy):
    """The pod that a resolver describes. Models that are made or compiled in scope() train on this
    pod.

    Networks that `compile` or `load` of systola.runtime returns in scope() run on the resolver's
    back end. In place of "fast", which only trains, such networks run on golden models ("iss").
    Raises TrainingError for anything but a TPUClusterResolver.
    """

    _training_backend: str

    @takes()
    def __init__(self, tpu_cluster_resolver: TPUClusterResolver | None = None) -> None:
        found = _resolver(tpu_cluster_resolver)
        backend = "iss" if found.backend == FAST else found.backend
        super().__init__(found.cores, found.preset, backend=backend, latency=found.latency)
        # Strategy is a frozen dataclass, so its fields are set in this way
        object.__setattr__(self, "_training_backend", found.backend)

    @property
    def training_backend(self) -> str:
        """The back end on which models of this strategy train."""
        return self._training_backend


TPUDistributionStrategy = TPUStrategy
"""Older name that TensorFlow has for TPUStrategy."""


@takes()
def experimental_connect_to_cluster(cluster_spec_or_resolver: TPUClusterResolver) -> None:
    """Check a resolver; simulated cores need no connection.

    Raises TrainingError for any other object.
    """
    _resolver(cluster_spec_or_resolver)


@takes()
def initialize_tpu_system(cluster_resolver: TPUClusterResolver | None = None) -> None:
    """Check a resolver; simulated cores start when they are used.

    Raises TrainingError for any other object.
    """
    _resolver(cluster_resolver)


@takes()
def keras_to_tpu_model(model: Any, strategy: Strategy | None = None) -> Sequential:
    """Return a model that trains on a pod: of `strategy`, else of the scope, else of eight cores.

    A Sequential is moved to the pod, with all that it has learnt. For a Keras model a new model is
    made; sync_to_cpu() brings its weights back to the Keras model. Raises TrainingError as
    from_keras() does.
    """
    if strategy is None:
        strategy = current_strategy() or TPUStrategy()
    if not isinstance(strategy, Strategy):  # type: ignore[reportUnnecessaryIsInstance]
        raise TrainingError(f"strategy must be a Strategy, not {shown(strategy)}")
    with strategy.scope():
        if not isinstance(model, Sequential):
            return from_keras(model)
        model.move(strategy)
        return model


def _resolver(given: object) -> TPUClusterResolver:
    """Return the given resolver; for None return a resolver of eight cores.

    Raises TrainingError for anything else.
    """
    if given is None:
        return TPUClusterResolver()
    if not isinstance(given, TPUClusterResolver):
        raise TrainingError(f"{shown(given)} is no TPUClusterResolver")
    return given
