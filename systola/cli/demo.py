# SPDX-License-Identifier: Apache-2.0
"""The command tpu demo: it runs test images through a real network on the simulated machine."""

from __future__ import annotations

import argparse
import io
from contextlib import ExitStack, suppress
from importlib.resources import files

import numpy as np

from systola.arch.config import DEFAULT_PRESET, Config
from systola.cli.arguments import add_json, add_preset, progress_bar, whole_number
from systola.cli.board import BOARD_OPTIONS, add_backend
from systola.cli.errors import UserError
from systola.cli.output import STANDARD_OUTPUT, write_output
from systola.cli.report import to_json
from systola.cli.run import describe, summary
from systola.cli.views import add_report, add_timeline, recording_backend
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import DEFAULT_BATCH, even_batch
from systola.runtime.litert import PACKAGE, VERSION, reference_outputs
from systola.views.plots import new_figure
from systola.views.report_page import report_page
from systola.views.web_demo import HOST, PIXELS, make_classifier, make_server

HELP = "classify handwritten digits, check the results, and show speed and limits"
MODEL = "mlp_tutorial_pc_softmax.tflite"
IMAGES = "digits_test.npz"
WEB_PORT = 8470
MACHINES = {"rtl": "the simulated RTL", "iss": "the golden model", "serial": "the board"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_preset(parser)
    add_backend(parser)
    parser.add_argument(
        "--batch",
        type=whole_number(1),
        metavar="B",
        help=f"images in one program (default: {DEFAULT_BATCH}, or a few less)",
    )
    add_timeline(parser)
    add_report(parser)
    parser.add_argument(
        "--web",
        nargs="?",
        const=WEB_PORT,
        type=whole_number(0, 65535),
        metavar="PORT",
        help="a local page instead: draw a digit, and watch a 4x4 array classify it on the RTL "
        f"(default port: {WEB_PORT}; 0: a free one)",
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command; return status 1 if a byte differs from one of the references."""
    if arguments.web is not None:
        return _serve(arguments)
    config: Config = arguments.preset
    folder = files("systola.models")
    model = (folder / MODEL).read_bytes()
    with np.load(io.BytesIO((folder / IMAGES).read_bytes())) as archive:
        x, digits, stored = archive["x"], archive["y"], archive["y_ref"]
    compiled = compile_content(config, model, None, arguments.batch or even_batch(len(x)))

    if arguments.report:
        new_figure(1, 1)  # a missing library is reported before the work begins
    with ExitStack() as stack:
        backend = recording_backend(arguments, config, stack)
        with progress_bar(len(x), "image", stays=True) as advance:
            run = compiled.run(x, backend=backend, progress=advance)
        if arguments.timeline:
            write_output(arguments.timeline, run.timeline(MODEL))
        golden = compiled.run(x, backend="iss")
        live = reference_outputs(model, x)
        answers = run.y.reshape(len(x), -1).argmax(axis=1)
        right = int(np.count_nonzero(answers == digits))
        equal = {
            "golden_model": np.array_equal(run.y, golden.y),
            "litert_stored": np.array_equal(run.y, stored),
            "litert_live": None if live is None else np.array_equal(run.y, live),
        }
        report = run.report()
        figures: dict[str, object] = {
            "backend": arguments.backend,
            "accuracy": right / len(x),
            "equal": equal,
            **describe(compiled, run, report),
        }
        if arguments.json:
            write_output(arguments.json, to_json(figures))
        if arguments.report:
            title = f"{MODEL} on '{config.name}'"
            page = report_page(run, report, title, figures, arguments.report_window)
            write_output(arguments.report, page)

    if STANDARD_OUTPUT not in (arguments.json, arguments.timeline, arguments.report):
        print(f"{len(x)} test images through {MODEL} on {MACHINES[arguments.backend]}")
        print(f"accuracy {100 * right / len(x):.2f} % ({right} of {len(x)})")
        print(f"every byte equals the golden model: {_yes(equal['golden_model'])}")
        print(
            f"every byte equals {PACKAGE} {VERSION}: {_yes(equal['litert_stored'])} (stored), ",
            end="",
        )
        print(
            "not installed here" if live is None else f"{_yes(equal['litert_live'])} (run just now)"
        )
        print(summary(compiled, run, report))
    return 1 if False in equal.values() else 0


def _serve(arguments: argparse.Namespace) -> int:
    """Serve the page until the user presses Control-C."""
    for option in ("batch", "json", "timeline", "report", "report_window", *BOARD_OPTIONS):
        if getattr(arguments, option) is not None:
            raise UserError(f"--{option.replace('_', '-')} does not go with --web")
    if arguments.backend != "rtl" or arguments.preset.name != DEFAULT_PRESET:
        raise UserError("--web has a machine of its own, a 4x4 array on the simulated RTL")
    classify = make_classifier()
    try:
        server = make_server(classify, arguments.web)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"port {arguments.web}: {reason} (--web 0 takes a free one)") from None
    with server:
        classify([0] * PIXELS)  # builds the simulator before the page is opened
        print(f"http://{HOST}:{server.server_port}/ - Control-C ends it", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _yes(equal: bool | None) -> str:
    return "yes" if equal else "NO"
