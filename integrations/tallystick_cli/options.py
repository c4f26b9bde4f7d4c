"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from tallystick_cli.table_help import help_of

Where = Annotated[
    str,
    typer.Option(
        "--tally", "-t", envvar="TALLYSTICK_TALLY", help="Folder of the tally, or postgresql://…"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Before = Annotated[str | None, typer.Option("--before", help=help_of("memories", "before"))]
InScope = Annotated[
    str | None,
    typer.Option(
        "--scope", "-s", help="Such as project:apollo; by default all that you may look into."
    ),
]
AtHome = Annotated[
    str | None,
    typer.Option("--scope", "-s", help="Such as project:apollo; by default your private one."),
]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        "-s",
        help="Such as project:apollo; repeatable; by default all that you may read.",
    ),
]
MemoryId = Annotated[
    str, typer.Argument(metavar="MEMORY", help="Id of a memory, or how it begins or ends.")
]
Reason = Annotated[str, typer.Option("--reason", "-r", help=help_of("forget", "reason"))]
Apply = Annotated[bool, typer.Option("--apply", help="Do it, with the token of a preview.")]
Preview = Annotated[bool, typer.Option("--preview", help="Only show what would be done.")]
Token = Annotated[str | None, typer.Option("--token", help=help_of("correct", "confirm_token"))]
Key = Annotated[
    str | None,
    typer.Option("--key", help=help_of("forget", "idempotency_key")),
]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", help=help_of("modify", "if_version"))
]
Into = Annotated[str, typer.Argument(metavar="SCOPE", help="Where to, such as project:apollo.")]
StepId = Annotated[
    str, typer.Argument(metavar="STEP", help="Id of a step, or how it begins or ends.")
]
FoilText = Annotated[
    str | None,
    typer.Option("--foil", help="COUNT:DIGEST that you kept, to catch what was cut off."),
]
CheckOnly = Annotated[
    bool, typer.Option("--check", help="Change nothing; exit with 1 when it does not match.")
]
