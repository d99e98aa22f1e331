# SPDX-License-Identifier: Apache-2.0
"""Takes optimiser, loss and metrics over from a Keras model on which compile() was called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from systola.training.checks import shown
from systola.training.errors import TrainingError
from systola.training.names import ACCURACIES, OWN_ACCURACY, loss_name, metric_name
from systola.training.not_there import INSTEAD
from systola.training.optimizers import KINDS, Optimizer
from systola.training.schedules import SCHEDULES

_AVERAGE = "sum_over_batch_size"
_ALLOWED: dict[str, tuple[object, ...]] = {
    "reduction": (_AVERAGE, None),
    "label_smoothing": (0.0, 0),
    "ignore_class": (None,),
    "axis": (-1,),
    "threshold": (0.5,),
}
"""Settings of Keras's losses and metrics, with the only values that training accepts for each."""
_FREE = ("name", "dtype", "from_logits", "fn")
"""Names of settings of a loss or metric that may have any value."""


def compile_arguments(config: Mapping[str, Any], *, probabilities: bool) -> dict[str, Any]:
    """Return the arguments for compile() that match the settings of a compiled Keras model.

    `config`: the result of Keras's get_compile_config(). `probabilities`: whether the network ends
    with softmax or sigmoid. Raises TrainingError for settings that training does not have.
    """
    loss = _loss(config.get("loss"), probabilities=probabilities)
    metrics: Any = config.get("metrics")
    if metrics is None:
        metrics = []
    if not isinstance(metrics, (list, tuple)):
        raise TrainingError(f"metrics of the Keras model must be a list, not {shown(metrics)}")
    several = cast("list[Any]", metrics)
    return {
        "optimizer": _optimizer(config.get("optimizer")),
        "loss": loss,
        "metrics": [_metric(each, loss) for each in several],
        "loss_weights": config.get("loss_weights"),
        "weighted_metrics": config.get("weighted_metrics"),
    }


def _optimizer(given: Any) -> Optimizer:
    if isinstance(given, str):
        given = {"class_name": given, "config": {}}
    name, config = _class("optimizer", given)
    kind = {each.lower(): found for each, found in KINDS.items()}.get(name.lower())
    if kind is None:
        raise TrainingError(f"optimizer {name} is not there: {INSTEAD.get(name, 'Adam is there')}")
    settings = {each: value for each, value in config.items() if each != "name"}
    rate = settings.get("learning_rate")
    if isinstance(rate, dict):
        settings["learning_rate"] = _schedule(cast("dict[str, Any]", rate))
    return kind(**settings)


def _schedule(given: Mapping[str, Any]) -> Any:
    name, config = _class("schedule", given)
    if name not in SCHEDULES:
        raise TrainingError(f"schedule {name} is not there (known: {', '.join(SCHEDULES)})")
    return SCHEDULES[name](**{each: value for each, value in config.items() if each != "name"})


def _loss(given: Any, *, probabilities: bool) -> str:
    if isinstance(given, str):
        return loss_name(given)
    name, config = _class("loss", given)
    if config.get("from_logits") and probabilities:
        raise TrainingError(
            f"loss {name} takes logits, but the last layer gives probabilities: leave one out"
        )
    return loss_name(name)


def _metric(given: Any, loss: str) -> str:
    if isinstance(given, str):
        metric_name(given, loss)
        return given
    name, config = _class("metric", given)
    own, found = config.get("name"), metric_name(name, loss)
    # A metric keeps the name that it has in Keras, for the logs. The condition is that this name
    # means the same metric here.
    same = ACCURACIES if found == OWN_ACCURACY.get(loss) else ()
    return str(own) if own in same else found


def _class(what: str, given: object) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a Keras class, or the name of a function and no settings.

    Raises TrainingError for anything else, and for settings that training would ignore.
    """
    is_object = isinstance(given, dict)
    found = cast("dict[str, Any]", given if is_object else {})
    name, config = found.get("class_name"), found.get("config")
    if name == "function" and isinstance(config, str):
        return config, {}
    if not isinstance(name, str) or not isinstance(config, dict):
        raise TrainingError(f"{what} {shown(given)} of the Keras model is not one that is there")
    settings = cast("dict[str, Any]", config)
    if what in ("loss", "metric"):
        for each, value in settings.items():
            if each not in _FREE and value not in _ALLOWED.get(each, (None,)):
                raise TrainingError(f"{what} {name} has {each} {shown(value)}: it would be ignored")
    return name, settings
