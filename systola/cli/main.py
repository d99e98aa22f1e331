# SPDX-License-Identifier: Apache-2.0
"""The tpu command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""Exit status after Control-C, the same as in shells."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: the process's own), and return its exit status."""
    from systola.cli.streams import drop_output, prepare_streams

    prepare_streams()
    status = 0
    try:
        status = _ended(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of standard output has gone, so Python must not complain when it flushes.
        drop_output()
        return 1
    except OSError as error:
        drop_output()
        if not status:
            reason = (error.strerror or str(error)).lower()
            print(f"tpu: error: cannot write standard output: {reason}", file=sys.stderr)
        return status or 2


def _ended(arguments: Sequence[str] | None) -> int:
    """Run the command line, and return its exit status, or the status with which argparse exits."""
    try:
        return _run(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def _run(arguments: Sequence[str] | None) -> int:
    from systola.arch.assembler import AssemblyError
    from systola.arch.config import ConfigError
    from systola.cli.errors import UserError
    from systola.cli.file_names import check_files
    from systola.cli.parser import COMMANDS, make_parser
    from systola.compiler.errors import CompileError, ModelError
    from systola.compiler.printable import printable
    from systola.runtime.backend import BackendError, UnavailableError
    from systola.sim.build import BuildFolderError
    from systola.sim.notices import choose_level
    from systola.synth.errors import SynthesisError
    from systola.views.missing_library import MissingLibraryError

    given = sys.argv[1:] if arguments is None else arguments
    # The modules of all commands take a second to import.
    parser = make_parser([each for each in given if each in COMMANDS])
    parsed = parser.parse_args(given)
    if "execute" not in parsed:
        parser.print_help()
        return 0
    choose_level(parsed.level)
    try:
        check_files(vars(parsed).values())
        return parsed.execute(parsed)
    except (
        AssemblyError,
        BuildFolderError,
        CompileError,
        ConfigError,
        MissingLibraryError,
        ModelError,
        UnavailableError,
        UserError,
    ) as error:
        parser.error(str(error))
    except MemoryError:
        parser.error("not enough memory for this")
    except BrokenPipeError:
        raise
    except OSError as error:
        parser.error(f"{error.filename or 'the system'}: {(error.strerror or str(error)).lower()}")
    except (BackendError, SynthesisError) as error:
        print(f"tpu: {printable(str(error))}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
