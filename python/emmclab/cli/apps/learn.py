"""`emmclab apps learn RECORDING -o FILE`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from emmclab.apps.closed_loop import learn_application
from emmclab.cli.command import command
from emmclab.cli.console import STDOUT, in_a_folder_or_stdout, output_option, print_json, print_stdout, stdout
from emmclab.cli.options import AsJson, argument, option
from emmclab.cli.progress import Meter
from emmclab.errors import ConfigError
from emmclab.runtime.files import write_atomically


@command(
    "strace -f -ttt -T -y -o app.strace ./app", "emmclab apps learn app.strace -o app.toml", "emmclab apps run app.toml"
)
def learn(
    recording: Annotated[str, argument("RECORDING", "A recording of system calls by strace or ftrace.")],
    output: Annotated[
        Path | None, output_option("Output file for the program; `-` for stdout.", callback=in_a_folder_or_stdout)
    ] = None,
    partitions: Annotated[
        list[str],
        option(
            "Partition of the files below a folder; all other files are on the first partition. May be repeated.",
            None,
            "--partition",
            metavar="NAME=FOLDER",
        ),
    ] = ["data=/"],  # noqa: B006
    user_waits_for: Annotated[
        str | None,
        option(
            "The thread that the user waits for, by its number in the kernel (PID in the recording); default: the "
            "first thread.",
            metavar="PID",
        ),
    ] = None,
    keep_pauses: Annotated[
        bool,
        option(
            "Accept a thread that mostly sleeps or waits for causes that are not in the recording; these waits "
            "then have the same length on every device."
        ),
    ] = False,
    cpu_factor: Annotated[
        float,
        option(
            "CPU factor of the recorded machine, as in `emmclab apps hosts`: 0.25 for cores four times as fast as "
            "1 GHz of 2010. On a host with this factor, work takes as long as recorded.",
            metavar="F",
        ),
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Create a program for `emmclab apps run` from a recording of system calls."""
    if output is None:
        raise ConfigError(
            "`emmclab apps learn` needs an output file",
            field="--output",
            hint="give an output file, for example `-o my-app.toml`, or `-o -` for stdout",
        )
    folders = _folders(partitions)
    with Meter(f"learning from {recording}"):
        learned = learn_application(
            recording,
            name=None if output == STDOUT else output.stem,
            partitions=folders,
            user_waits_for=user_waits_for,
            keep_pauses=keep_pauses,
            cpu_factor=cpu_factor,
        )
    if output == STDOUT:
        print_stdout(learned.program.rstrip("\n"))
        return
    write_atomically(output, learned.program)
    if as_json:
        print_json({**asdict(learned), "program": str(output.resolve())})
        return
    from emmclab.cli.apps.show_applications import show_learned

    show_learned(stdout(), learned, output, cpu_factor)


def _folders(partitions: list[str]) -> dict[str, str]:
    folders = {}
    for word in partitions:
        name, _, folder = word.partition("=")
        if not (name and folder.startswith("/")):
            raise ConfigError(
                f"`{word}` is not NAME=FOLDER", field="--partition", hint="write partition and folder as data=/data"
            )
        folders[name] = folder
    return folders
